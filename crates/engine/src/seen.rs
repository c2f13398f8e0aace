//! The tensors of a line that were seen, and whether their sizes change.

use std::collections::VecDeque;
use std::sync::Weak;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::capacities::{Capacities, Class};
use crate::storage::Storage;

/// The number of sets of sizes that are remembered for each line.
pub(crate) const REMEMBERED: usize = 32;

/// A tensor that outlives this many later ones of its line stays.
const STAYS: u64 = 8;

/// A line whose tensors stay, and differ in the same dimensions, uploads data from this many sets of sizes on. Few models
/// have as many different parameters.
const MANY: usize = 64;

/// Sizes of a line's uploads stay exact if they lead the other sizes by this many uploads before any change.
const USUAL: u32 = 8;

/// Sizes that change stay exact after this many uploads of a line in a row: programs for padding take up to three times as
/// long as those for exact sizes, so that compiling these pays.
const OFTEN: u32 = 128;

/// Tensors of one line and source, of one element type and rank.
#[derive(Default)]
pub(crate) struct Tensors {
    number: u64,
    pub seen: VecDeque<Seen>,
    /// The sizes of tensors that stay.
    staying: FxHashSet<Vec<i64>>,
    pub changing: Vec<Class>,
    /// The sizes of most uploads before any change, and by how many they lead; or those that came often in a row since.
    pub usual: (Vec<i64>, u32),
    /// The sizes of the last uploads since a change, and how many in a row had them.
    last: (Vec<i64>, u32),
    /// Whether the user has marked dimensions. Their sizes never become exact.
    pub is_marked: bool,
    /// Whether a value with padding was written into one of these new tensors, or joined with one: they are data.
    pub is_data: bool,
}

/// The last tensor of these sizes.
pub(crate) struct Seen {
    pub sizes: Vec<i64>,
    pub storage: Weak<Storage>,
    number: u64,
}

/// How many other sizes show that sizes change.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Proof {
    One,
    Two,
    /// A model may compute the same few sizes in each step, as a pyramid of images does.
    Five,
}

impl Tensors {
    /// Whether these are the sizes of most uploads of the line. Each upload is counted until any sizes change. Since then
    /// uploads in a row are.
    pub fn is_usual(&mut self, sizes: &[i64]) -> bool {
        let (usual, lead) = &mut self.usual;
        if !self.changing.is_empty() {
            match self.last.0 == sizes {
                true => self.last.1 = self.last.1.saturating_add(1),
                false => self.last = (sizes.to_vec(), 1),
            }
            if self.last.1 > OFTEN && !self.is_marked {
                (*usual, *lead) = (sizes.to_vec(), USUAL);
            }
            return *lead >= USUAL && *usual == sizes;
        }
        match *usual == sizes {
            true => *lead += 1,
            false if *lead == 0 => self.usual = (sizes.to_vec(), 1),
            false => *lead -= 1,
        }
        false
    }

    /// The class of the sizes. `None` as long as all are taken for constants.
    pub fn class(
        &mut self,
        sizes: &[i64],
        storage: Weak<Storage>,
        proof: Proof,
        capacities: &mut Capacities,
    ) -> Option<&mut Class> {
        if let Some(place) = self.changing.iter().position(|class| class.fits(sizes)) {
            return Some(&mut self.changing[place]);
        }
        let largest = self.learn(sizes, storage, proof)?;
        let known = largest.iter().zip(sizes).map(|(largest, &size)| largest.is_none().then_some(size)).collect();
        let mut class = Class::new(known);
        for (axis, largest) in largest.into_iter().enumerate() {
            class.capacities[axis].extend(largest.map(|largest| capacities.of(largest)));
        }
        capacities.found += 1;
        self.changing.push(class);
        self.changing.last_mut()
    }

    /// Remembers a tensor. If earlier ones differ from it and from each other in the same dimensions only, and they are
    /// gone, these dimensions change. Returns the largest size of those that do, by dimension.
    fn learn(&mut self, sizes: &[i64], storage: Weak<Storage>, proof: Proof) -> Option<Vec<Option<i64>>> {
        self.number += 1;
        let number = self.number;
        let is_gone = |seen: &Seen| seen.storage.strong_count() == 0 || seen.storage.ptr_eq(&storage);
        let stays = |seen: &Seen| number - seen.number > STAYS && !is_gone(seen);
        if self.staying.len() < 4 * MANY {
            self.staying.extend(self.seen.iter().filter(|&seen| stays(seen)).map(|seen| seen.sizes.clone()));
        }
        self.seen.retain(|seen| !stays(seen));
        if self.seen.iter().any(|seen| seen.sizes == sizes) {
            self.remember(sizes, storage);
            return None;
        }
        // The last tensor may be about to be replaced.
        let is_over = |seen: &&Seen| is_gone(seen) || seen.number + 1 == number;
        let gone: Vec<&Seen> = self.seen.iter().filter(is_over).collect();
        let largest = gone.iter().enumerate().rev().find_map(|(i, first)| {
            let differs = differing(&first.sizes, sizes);
            let is_alike = |second: &&&Seen| {
                differing(&second.sizes, sizes) == differs && differing(&second.sizes, &first.sizes) == differs
            };
            let second = match proof {
                Proof::Five => gone[..i].iter().filter(is_alike).nth(3),
                _ => gone[..i].iter().find(is_alike),
            };
            // One other size is enough where the rest is the same.
            let is_same = sizes.len() == 1 || differs.len() < sizes.len();
            let is_shown = second.is_some() || proof == Proof::One && is_same && is_gone(first);
            let others: Vec<&[i64]> = [Some(first), second].into_iter().flatten().map(|seen| &seen.sizes[..]).collect();
            (!differs.is_empty() && is_shown).then(|| largest_of(sizes, &others, &differs))
        });
        let largest = largest.or_else(|| self.largest_of_many(sizes));
        self.remember(sizes, storage);
        largest
    }

    /// The largest size of each dimension that changes, if many tensors that stay differ from a new one in the same
    /// dimensions.
    fn largest_of_many(&self, sizes: &[i64]) -> Option<Vec<Option<i64>>> {
        if self.staying.len() < MANY {
            return None;
        }
        let mut alike: FxHashMap<Vec<usize>, Vec<&[i64]>> = FxHashMap::default();
        for other in &self.staying {
            alike.entry(differing(other, sizes)).or_default().push(other);
        }
        let are_many = |(differs, others): &(Vec<usize>, Vec<&[i64]>)| !differs.is_empty() && others.len() >= MANY;
        alike.into_iter().find(are_many).map(|(differs, others)| largest_of(sizes, &others, &differs))
    }

    pub fn remember(&mut self, sizes: &[i64], storage: Weak<Storage>) {
        let new = Seen { sizes: sizes.to_vec(), storage, number: self.number };
        if let Some(known) = self.seen.iter_mut().find(|seen| seen.sizes == sizes) {
            *known = new;
            return;
        }
        self.seen.push_back(new);
        if self.seen.len() > REMEMBERED {
            self.seen.pop_front();
        }
    }
}

/// The dimensions in which sizes differ. Empty also if one of them is 1 or 0, which is a size of its own kind.
fn differing(a: &[i64], b: &[i64]) -> Vec<usize> {
    let differs: Vec<usize> = (0..a.len()).filter(|&axis| a[axis] != b[axis]).collect();
    if differs.iter().any(|&axis| a[axis].min(b[axis]) < 2) { Vec::new() } else { differs }
}

/// The largest of these sizes and `others` in the dimensions in which they differ; `None` for the rest.
fn largest_of(sizes: &[i64], others: &[&[i64]], differs: &[usize]) -> Vec<Option<i64>> {
    let largest = |axis: usize| others.iter().fold(sizes[axis], |most, other| most.max(other[axis]));
    (0..sizes.len()).map(|axis| differs.contains(&axis).then(|| largest(axis))).collect()
}
