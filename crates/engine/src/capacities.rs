//! The capacities of sizes that change: those of a line, and those of all lines.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

/// The capacity of a line serves a size if it is at most this many times the size. A new one would compile every
/// operator again.
const MOST_PADDING: i64 = 16;

/// The capacity of another line serves a size if it is at most this many times the size.
const MOST_OF_OTHERS: i64 = 4;

/// A capacity of this many times the next power of two is far from a size.
const FAR: i64 = 4;

/// A capacity is near one that differs by at most this part of it.
const NEAR: i64 = 8;

/// Several dimensions take capacities that they have had together if these hold at most this many times the elements.
const MOST_TOGETHER: i64 = 2 * MOST_PADDING;

/// So many elements cost less than another program, whatever part of them is padding.
const FEW_ELEMENTS: i64 = 1 << 16;

/// Sizes get closer capacities when they have had far ones this many times. Each operator is compiled again for these.
const OFTEN_FAR: u32 = 16;

/// A number that the data decide keeps its capacity until it was far for this many such numbers in a row. A step of a
/// model has several, and each combination of their capacities is another program.
const OFTEN_FAR_IN_A_ROW: u32 = 64;

/// Sizes of which some change.
#[derive(Clone)]
pub(crate) struct Class {
    /// The sizes that do not change, by dimension.
    pub known: Vec<Option<i64>>,
    /// The largest sizes of those that do, if the user has given them.
    pub most: Vec<Option<i64>>,
    /// The capacities so far of each.
    pub capacities: Vec<Vec<i64>>,
    /// The capacities that several dimensions have had together: each such combination has its own programs.
    combined: Vec<Vec<Option<i64>>>,
    /// The number of times that sizes got capacities far from them, by the closer capacities that they did not get.
    far: FxHashMap<Vec<Option<i64>>, u32>,
    /// Whether a result of these sizes was an argument of the next call at its line.
    pub grows: bool,
}

impl Class {
    pub fn new(known: Vec<Option<i64>>) -> Class {
        let (most, capacities) = (vec![None; known.len()], vec![Vec::new(); known.len()]);
        Class { known, most, capacities, combined: Vec::new(), far: FxHashMap::default(), grows: false }
    }

    /// The capacity of a size in a dimension that changes: one that the dimension has had, else a new one.
    pub fn capacity(&mut self, axis: usize, size: i64, others: &mut Capacities) -> i64 {
        if let Some(most) = self.most[axis].filter(|&most| size <= most) {
            return most;
        }
        if let Some(known) = self.capacities[axis].iter().copied().filter(|&known| serves(known, size)).min() {
            return known;
        }
        let new = others.of(size);
        self.capacities[axis].push(new);
        new
    }

    /// The capacities of the dimensions that change; `None` for the others. A call counts sizes that get capacities far from
    /// them, and sizes that come often get closer ones.
    pub fn capacities(&mut self, sizes: &[i64], others: &mut Capacities) -> Vec<Option<i64>> {
        let found = self.served(sizes, others);
        if self.is_marked() || !found.iter().zip(sizes).any(|(&capacity, &size)| is_far(capacity, size)) {
            return found;
        }
        let closer = |(&capacity, &size): (&Option<i64>, &i64)| match is_far(capacity, size) {
            true => Some(next_power(size)),
            false => capacity,
        };
        let closer: Vec<Option<i64>> = found.iter().zip(sizes).map(closer).collect();
        let often = self.far.entry(closer.clone()).or_default();
        *often += 1;
        if *often < OFTEN_FAR {
            return found;
        }
        self.far.remove(&closer);
        for (axis, capacity) in closer.iter().enumerate() {
            let known = &mut self.capacities[axis];
            known.extend(capacity.filter(|capacity| !known.contains(capacity)));
            others.in_use.extend(capacity);
        }
        self.note_combined(&closer);
        closer
    }

    /// Capacities that the dimensions have had, else new ones. Several dimensions take a combination that they have had, if
    /// it serves: other capacities would be one more program for each operator.
    fn served(&mut self, sizes: &[i64], others: &mut Capacities) -> Vec<Option<i64>> {
        let serves = |padded: &&Vec<Option<i64>>| {
            let mut pairs = padded.iter().zip(sizes);
            pairs.all(|(capacity, &size)| capacity.is_none_or(|capacity| serves(capacity, size)))
        };
        let known = self.combined.iter().filter(serves).min_by_key(|padded| elements(padded.iter().flatten().copied()));
        let known = known.filter(|padded| !self.is_marked() && holds_at_most(padded, sizes, MOST_TOGETHER));
        if let Some(known) = known {
            return known.clone();
        }
        let of = |axis: usize| self.known[axis].is_none().then(|| self.capacity(axis, sizes[axis], others));
        let mut new: Vec<Option<i64>> = (0..sizes.len()).map(of).collect();
        if !self.is_marked() && !holds_at_most(&new, sizes, MOST_PADDING) {
            // Capacities of other combinations: their padding multiplies.
            let closest = |(capacity, &size): (&Option<i64>, &i64)| capacity.map(|_| power_of_two(size));
            new = new.iter().zip(sizes).map(closest).collect();
        }
        self.note_combined(&new);
        new
    }

    /// Whether the user has given the largest size of a dimension.
    fn is_marked(&self) -> bool {
        self.most.iter().any(Option::is_some)
    }

    fn note_combined(&mut self, capacities: &[Option<i64>]) {
        if capacities.iter().flatten().count() > 1 && !self.combined.iter().any(|known| known == capacities) {
            self.combined.push(capacities.to_vec());
        }
    }

    pub fn fits(&self, sizes: &[i64]) -> bool {
        self.known.iter().zip(sizes).all(|(known, size)| known.map_or(*size > 1, |known| known == *size))
    }
}

/// The capacity of numbers that the data decide at a line, where they have one largest possible number.
#[derive(Default)]
pub(crate) struct Counted {
    /// The capacities so far. The last one is in use.
    capacities: Vec<i64>,
    /// For how many numbers in a row it was far.
    far: u32,
}

impl Counted {
    /// The capacity of a number, of `most` at most: the one in use if it serves, else the largest so far that does. One of
    /// up to half of `most` always serves.
    pub fn capacity(&mut self, number: i64, most: i64, others: &mut Capacities) -> i64 {
        let serving = |&capacity: &i64| number <= capacity && (serves(capacity, number) || capacity <= most / 2);
        let in_use = self.capacities.last().copied().filter(serving);
        self.far = if in_use.is_some() && is_far(in_use, number) { self.far + 1 } else { 0 };
        if let Some(in_use) = in_use.filter(|_| self.far < OFTEN_FAR_IN_A_ROW) {
            return in_use;
        }
        let known = match in_use {
            // Numbers like this one may be on the other side of a power of two.
            Some(_) => next_power(number).saturating_mul(FAR / 2),
            // The next number may be a little larger.
            None => {
                let known = self.capacities.iter().copied().filter(serving).max();
                known.unwrap_or_else(|| others.of(number.saturating_add(number / 4)))
            }
        };
        let known = known.min(most.max(number));
        self.far = 0;
        self.capacities.retain(|&capacity| capacity != known);
        self.capacities.push(known);
        known
    }
}

fn serves(capacity: i64, size: i64) -> bool {
    (size..=size.saturating_mul(MOST_PADDING)).contains(&capacity)
}

/// Whether a size has a capacity that is far from it.
fn is_far(capacity: Option<i64>, size: i64) -> bool {
    capacity.is_some_and(|capacity| capacity >= next_power(size).saturating_mul(FAR))
}

/// The capacity for a size alone.
fn next_power(size: i64) -> i64 {
    power_of_two(size.max(16))
}

fn power_of_two(size: i64) -> i64 {
    size.max(1).unsigned_abs().next_power_of_two() as i64
}

/// Whether a value of these capacities has at most so many times the elements that its sizes have, or few.
fn holds_at_most(padded: &[Option<i64>], sizes: &[i64], times: i64) -> bool {
    let held = elements(padded.iter().zip(sizes).map(|(capacity, &size)| capacity.unwrap_or(size)));
    held <= elements(sizes.iter().copied()).saturating_mul(times).max(FEW_ELEMENTS)
}

/// The capacity of a size that a row computes: the largest that it can be, or a capacity near it. Sizes that differ by a
/// little, as those of windows do, so have the same capacity, and values of both go together.
pub(crate) fn of_computed(largest: i64, size: i64, given: &[i64]) -> i64 {
    let distance = |capacity: i64| largest.abs_diff(capacity);
    let power = power_of_two(largest);
    let near = given.iter().copied().chain([power / 2, power]);
    let near = near.filter(|&capacity| size <= capacity && distance(capacity) as i64 <= capacity / NEAR);
    near.min_by_key(|&capacity| distance(capacity)).unwrap_or(largest)
}

fn elements(sizes: impl Iterator<Item = i64>) -> i64 {
    sizes.fold(1, i64::saturating_mul)
}

/// The capacities in use.
#[derive(Default)]
pub(crate) struct Capacities {
    in_use: BTreeSet<i64>,
    /// How often sizes were found to change.
    pub found: u64,
    /// The number of uploads that got padding, if each may have other capacities.
    pub padded: Option<u64>,
}

impl Capacities {
    /// With a number of uploads that got padding, each may have other capacities.
    pub fn new(padded: Option<u64>) -> Capacities {
        Capacities { padded, ..Capacities::default() }
    }

    /// The capacity for a size: one in use, else the next power of two.
    pub fn of(&mut self, size: i64) -> i64 {
        let next = next_power(size);
        if let Some(padded) = self.padded {
            return next << (padded % 3 / 2);
        }
        self.near(size).unwrap_or_else(|| {
            self.in_use.insert(next);
            next
        })
    }

    /// The smallest capacity in use that serves a size.
    pub fn near(&self, size: i64) -> Option<i64> {
        self.in_use.range(size..=size.saturating_mul(MOST_OF_OTHERS)).next().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_take_a_combination_of_capacities_that_they_have_had() {
        let (mut class, mut others) = (Class::new(vec![None, Some(3), None]), Capacities::default());
        let mut of = |rows, columns| class.capacities(&[rows, 3, columns], &mut others);
        assert_eq!(of(40, 60), [Some(64), None, Some(64)]);
        // 64 is beyond 16 times.
        assert_eq!(of(2, 2), [Some(16), None, Some(16)]);
        // The first dimension alone would take 16, the second one 64.
        assert_eq!(of(14, 29), [Some(64), None, Some(64)]);
        // The one with the least padding.
        assert_eq!(of(14, 15), [Some(16), None, Some(16)]);
        // 64 is beyond 16 times the first one, 16 below the second one.
        assert_eq!(of(3, 60), [Some(16), None, Some(64)]);
        assert_eq!(of(14, 29), [Some(16), None, Some(64)]);
    }

    #[test]
    fn the_padding_of_several_dimensions_together_is_bounded() {
        let (mut class, mut others) = (Class::new(vec![None; 4]), Capacities::default());
        let mut of =
            |sizes: [i64; 4]| class.capacities(&sizes, &mut others).into_iter().map(Option::unwrap).collect::<Vec<_>>();
        assert_eq!(of([256, 4, 16, 16]), [256, 16, 16, 16]);
        assert_eq!(of([2, 4, 1024, 16]), [2, 4, 1024, 16]);
        // Each of these capacities is in use and serves, but together they hold 2,048 times the elements.
        assert_eq!(of([32, 2, 128, 16]), [32, 2, 128, 16]);
        // A few elements take any.
        assert_eq!(of([3, 2, 3, 3]), [16, 16, 16, 16]);
    }

    #[test]
    fn numbers_that_the_data_decide_keep_their_capacity() {
        let (mut counted, mut others) = (Counted::default(), Capacities::default());
        let mut of = |number| counted.capacity(number, 256, &mut others);
        assert_eq!([50, 70, 60, 33, 128, 16, 3].map(&mut of), [64, 128, 128, 128, 128, 128, 128]);
        // More than half of the largest number, and more than 16 times the second one.
        assert_eq!([200, 3, 60, 70].map(&mut of), [256, 128, 128, 128]);
        assert!((0..OFTEN_FAR_IN_A_ROW as i64 - 1).all(|i| of(9 + i % 20) == 128));
        assert_eq!([17, 33, 70, 60].map(&mut of), [64, 64, 256, 256]);
        // No more than there can be.
        assert_eq!(Counted::default().capacity(95, 100, &mut others), 100);
    }

    #[test]
    fn computed_sizes_take_capacities_near_them() {
        // Half of the size, and windows of three elements.
        assert_eq!(of_computed(32, 20, &[64]), 32);
        assert_eq!(of_computed(62, 40, &[64]), 64);
        assert_eq!(of_computed(67, 40, &[64]), 64);
        assert_eq!(of_computed(67, 66, &[64]), 67);
        assert_eq!(of_computed(103, 40, &[100]), 100);
        assert_eq!(of_computed(50, 40, &[100]), 50);
    }

    #[test]
    fn sizes_that_come_often_get_closer_capacities() {
        let (mut class, mut others) = (Class::new(vec![None, Some(3)]), Capacities::default());
        let mut of = |rows| class.capacities(&[rows, 3], &mut others)[0];
        assert_eq!(of(1000), Some(1024));
        assert!((0..OFTEN_FAR as i64 - 1).all(|i| of(70 + i % 9) == Some(1024)));
        assert_eq!(of(70), Some(128));
        // Half of the capacity is not far.
        assert!((0..2 * OFTEN_FAR).all(|_| of(300) == Some(1024)));
        assert_eq!(of(128), Some(128));
        assert_eq!(of(1000), Some(1024));
    }
}
