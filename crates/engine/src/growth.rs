//! Finds the sizes that change, and chooses the capacities of programs for them.
//!
//! A line of the user's program that writes tensors again and again, each time with other sizes, has sizes that
//! change: from the third set of sizes on its tensors get padding. Operators on them have programs for all sizes up to
//! a capacity, and their results have padding too. There are few capacities, so that there are few programs.
//!
//! Tensors that stay, such as parameters, do not count, because padding would cost in every step and gain nothing.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Weak;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustc_hash::FxHashMap;
use stablehlo::Type;

use crate::lines::Line;
use crate::storage::{Storage, TypeId};

/// A known capacity serves a size if it is at most this many times the size. A new one would compile every operator
/// again.
const MOST_PADDING: i64 = 16;

/// A value may have this many bytes with padding, however few it has without.
const SMALL_VALUE: i64 = 64 << 20;

/// A larger value has at most this many times its bytes with padding. Each dimension that changes multiplies the padding
/// of the others, so that five of them could take a million times the memory.
const MOST_OF_LARGE: i64 = 4;

/// The number of sets of sizes that are remembered for each line.
const REMEMBERED: usize = 32;

/// A tensor that outlives this many later ones of its line stays.
const STAYS: u64 = 8;

/// Where tensors of a line come from.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Source {
    Upload,
    /// Results of operators that may be arguments of the next call at the line.
    Result,
    /// Results that join many tensors of the same sizes. Their number counts as the size.
    Joined,
    /// Results of an operator without tensor arguments.
    Created(u32),
    /// Parts of values of one type that are an argument of an operator.
    Part {
        op: u32,
        argument: usize,
        whole: TypeId,
    },
}

/// A line, what its tensors are, their element type and rank.
type Place = (Line, Source, i8, usize);

/// Tensors of one line and source, of one element type and rank.
#[derive(Default)]
struct Tensors {
    number: u64,
    seen: VecDeque<Seen>,
    changing: Vec<Class>,
}

/// Sizes of which some change.
#[derive(Clone)]
struct Class {
    /// The sizes that do not change, by dimension.
    known: Vec<Option<i64>>,
    /// The largest sizes of those that do, if the user has given them.
    most: Vec<Option<i64>>,
    /// Whether a result of these sizes was an argument of the next call at its line.
    grows: bool,
}

impl Class {
    fn new(known: Vec<Option<i64>>) -> Class {
        let most = vec![None; known.len()];
        Class { known, most, grows: false }
    }

    fn fits(&self, sizes: &[i64]) -> bool {
        self.known.iter().zip(sizes).all(|(known, size)| known.map_or(*size > 1, |known| known == *size))
    }
}

/// The last tensor of these sizes.
struct Seen {
    sizes: Vec<i64>,
    storage: Weak<Storage>,
    number: u64,
}

static IS_ON: AtomicBool = AtomicBool::new(false);

/// Whether sizes that change are looked for.
pub fn is_on() -> bool {
    IS_ON.load(Relaxed)
}

/// Whether a value may have these dimensions with padding.
pub(crate) fn is_affordable(padded: &[i64], actual: &[i64], element: usize) -> bool {
    let bytes = |dims: &[i64]| dims.iter().fold(element as i64, |bytes, &size| bytes.saturating_mul(size));
    bytes(padded) <= SMALL_VALUE.max(bytes(actual).saturating_mul(MOST_OF_LARGE))
}

/// How sizes that change are treated.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Setting {
    /// Each set of sizes has its own programs.
    Static,
    /// From the third set of sizes on, sizes are inputs of programs.
    Dynamic,
    /// The same also for new tensors.
    All,
    /// All sizes of uploads change, also those seen once, and capacities differ. For tests.
    Padded,
}

impl Setting {
    /// The setting of a name, which is a value of `TORCHTPU_SIZES`.
    pub fn of(name: &str) -> Option<Setting> {
        match name.trim() {
            "static" => Some(Setting::Static),
            "" | "dynamic" => Some(Setting::Dynamic),
            "all" => Some(Setting::All),
            "padded" => Some(Setting::Padded),
            _ => None,
        }
    }
}

/// The sizes that were seen to change, and the capacities in use.
pub(crate) struct Growth {
    setting: Setting,
    tensors: FxHashMap<Place, Tensors>,
    capacities: BTreeSet<i64>,
    /// The result of a call without tensors, or of many that it joins, that is being defined.
    created: Option<(Place, Vec<i64>)>,
    /// The number of uploads that got padding.
    padded: u64,
}

impl Growth {
    pub fn new(setting: Setting) -> Growth {
        IS_ON.store(setting != Setting::Static, Relaxed);
        Growth { setting, tensors: FxHashMap::default(), capacities: BTreeSet::new(), created: None, padded: 0 }
    }

    pub fn is_on(&self) -> bool {
        self.setting != Setting::Static
    }

    /// The capacities of the dimensions of an upload; `None` for a dimension that does not change. `None` if no
    /// dimension changes, or if the padding would be too large.
    pub fn upload(&mut self, line: Line, scalar_type: i8, ty: &Type, storage: &Storage) -> Option<Vec<Option<i64>>> {
        let sizes = &ty.dims[..];
        if !self.is_on() || sizes.is_empty() || sizes.contains(&0) {
            return None;
        }
        let class = match self.setting == Setting::Padded {
            true => Class::new(sizes.iter().map(|&size| (size < 2).then_some(size)).collect()),
            false => self.of(line, Source::Upload, scalar_type, sizes.len()).class(sizes, storage.downgrade())?,
        };
        if class.known.iter().all(Option::is_some) {
            return None;
        }
        self.padded += 1;
        let capacity = |(axis, &size): (usize, &i64)| {
            let most = class.most[axis].filter(|&most| size <= most);
            class.known[axis].is_none().then(|| most.unwrap_or_else(|| self.capacity(size)))
        };
        let capacities: Vec<Option<i64>> = sizes.iter().enumerate().map(capacity).collect();
        let padded: Vec<i64> = capacities.iter().zip(sizes).map(|(capacity, &size)| capacity.unwrap_or(size)).collect();
        is_affordable(&padded, sizes, ty.dtype.size_bytes()).then_some(capacities)
    }

    /// The capacity of a dimension that changes because the user says so, up to `most`. Later uploads of the tensor's
    /// line have it too.
    pub fn mark(&mut self, storage: &Storage, sizes: &[i64], axis: usize, most: Option<i64>) -> i64 {
        let is_it = |seen: &Seen| std::ptr::eq(seen.storage.as_ptr(), storage) && seen.sizes == sizes;
        let mut uploads = self.tensors.iter_mut().filter(|(key, _)| key.1 == Source::Upload);
        if let Some((_, uploads)) = uploads.find(|(_, uploads)| uploads.seen.iter().any(is_it)) {
            let known = uploads.changing.iter().position(|class| class.fits(sizes));
            let place = known.unwrap_or_else(|| {
                uploads.changing.push(Class::new(sizes.iter().copied().map(Some).collect()));
                uploads.changing.len() - 1
            });
            (uploads.changing[place].known[axis], uploads.changing[place].most[axis]) = (None, most);
        }
        most.filter(|&most| sizes[axis] <= most).unwrap_or_else(|| self.capacity(sizes[axis]))
    }

    /// The dimensions of a result that grow from call to call of a line. `None` if none do. `given` are the sizes of the
    /// arguments, of which one may be the result of the last call.
    pub fn result(&mut self, line: Line, scalar_type: i8, sizes: &[i64], given: &[&[i64]]) -> Option<Vec<bool>> {
        if !self.is_on() || !line.is_known() || sizes.contains(&0) {
            return None;
        }
        let results = self.of(line, Source::Result, scalar_type, sizes.len());
        let is_argument = results.seen.iter().any(|seen| given.contains(&&seen.sizes[..]));
        results.class(sizes, Weak::new())?;
        let class = results.changing.iter_mut().find(|class| class.fits(sizes))?;
        class.grows |= is_argument;
        class.grows.then(|| class.known.iter().map(Option::is_none).collect())
    }

    /// The sizes of a tensor that is neither uploaded nor a whole value with padding, if they change at its line: sizes and
    /// capacities. `storage` is its storage, if that is known and the tensor may stay.
    pub fn changing(
        &mut self,
        line: Line,
        source: Source,
        scalar_type: i8,
        sizes: &[i64],
        storage: Weak<Storage>,
    ) -> Vec<(i64, i64)> {
        // A new tensor may become a parameter or a state of an optimizer, which padding would slow down.
        let is_left_out = self.setting == Setting::Dynamic && matches!(source, Source::Created(_));
        if is_left_out || !line.is_known() || sizes.is_empty() || sizes.contains(&0) {
            return Vec::new();
        }
        let class = match self.setting == Setting::Padded {
            true => Some(Class::new(sizes.iter().map(|&size| (size < 2).then_some(size)).collect())),
            false => self.of(line, source, scalar_type, sizes.len()).class(sizes, storage),
        };
        let Some(class) = class else {
            self.created = matches!(source, Source::Created(_) | Source::Joined)
                .then(|| ((line, source, scalar_type, sizes.len()), sizes.to_vec()));
            return Vec::new();
        };
        let changing = sizes.iter().zip(&class.known).filter(|(_, known)| known.is_none());
        let changing: Vec<i64> = changing.map(|(&size, _)| size).collect();
        changing.into_iter().map(|size| (size, self.capacity(size))).collect()
    }

    /// Notes the storage of the result of the call that was just defined: the result may stay.
    #[inline]
    pub fn note_created(&mut self, storage: Option<&Storage>) {
        if self.created.is_some() {
            self.fill_created(storage);
        }
    }

    #[cold]
    fn fill_created(&mut self, storage: Option<&Storage>) {
        let Some((place, sizes)) = self.created.take() else { return };
        let seen = self.tensors.get_mut(&place).and_then(|of| of.seen.iter_mut().find(|seen| seen.sizes == sizes));
        if let (Some(seen), Some(storage)) = (seen, storage) {
            seen.storage = storage.downgrade();
        }
    }

    fn of(&mut self, line: Line, source: Source, scalar_type: i8, rank: usize) -> &mut Tensors {
        self.tensors.entry((line, source, scalar_type, rank)).or_default()
    }

    /// The capacity for a size that will grow.
    pub fn room(&mut self, size: i64) -> i64 {
        let twice = size.saturating_mul(2);
        self.in_use(size).unwrap_or_else(|| self.capacity(twice))
    }

    fn in_use(&self, size: i64) -> Option<i64> {
        self.capacities.range(size..=size.saturating_mul(MOST_PADDING)).next().copied()
    }

    /// The capacity for a size: one in use, else the next power of two.
    pub fn capacity(&mut self, size: i64) -> i64 {
        let next = size.max(16).unsigned_abs().next_power_of_two() as i64;
        if self.setting == Setting::Padded {
            return next << (self.padded % 3 / 2);
        }
        self.in_use(size).unwrap_or_else(|| {
            self.capacities.insert(next);
            next
        })
    }
}

impl Tensors {
    /// The class of the sizes. `None` as long as all are taken for constants.
    fn class(&mut self, sizes: &[i64], storage: Weak<Storage>) -> Option<Class> {
        if let Some(class) = self.changing.iter().find(|class| class.fits(sizes)) {
            return Some(class.clone());
        }
        let class = self.learn(sizes, storage).map(Class::new);
        self.changing.extend(class.clone());
        class
    }

    /// Remembers a tensor. If two earlier ones differ from it and from each other in the same dimensions only, and
    /// they are gone, these dimensions change. The sizes that do not are returned, by dimension.
    fn learn(&mut self, sizes: &[i64], storage: Weak<Storage>) -> Option<Vec<Option<i64>>> {
        self.number += 1;
        let number = self.number;
        let is_gone = |seen: &Seen| seen.storage.strong_count() == 0 || seen.storage.ptr_eq(&storage);
        self.seen.retain(|seen| number - seen.number <= STAYS || is_gone(seen));
        if self.seen.iter().any(|seen| seen.sizes == sizes) {
            self.remember(sizes, storage);
            return None;
        }
        // The last tensor may be about to be replaced.
        let is_over = |seen: &&Seen| is_gone(seen) || seen.number + 1 == number;
        let gone: Vec<&Seen> = self.seen.iter().filter(is_over).collect();
        let class = gone.iter().enumerate().rev().find_map(|(i, first)| {
            let differs = differing(&first.sizes, sizes);
            let is_alike = |second: &&Seen| {
                differing(&second.sizes, sizes) == differs && differing(&second.sizes, &first.sizes) == differs
            };
            let known = |axis: usize| (!differs.contains(&axis)).then(|| sizes[axis]);
            (!differs.is_empty() && gone[..i].iter().any(is_alike)).then(|| (0..sizes.len()).map(known).collect())
        });
        self.remember(sizes, storage);
        class
    }

    fn remember(&mut self, sizes: &[i64], storage: Weak<Storage>) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_of_many_dimensions_is_not_affordable() {
        assert!(is_affordable(&[128, 128], &[9, 9], 4));
        assert!(!is_affordable(&[128; 5], &[9; 5], 4));
        assert!(is_affordable(&[1 << 30], &[(1 << 29) + 1], 4));
        assert!(!is_affordable(&[i64::MAX, 2], &[9, 1], 8));
    }
}
