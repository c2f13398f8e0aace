//! The sizes that calls are given: whether they follow sizes that change.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::growth::Changing;
use crate::lines::Line;
use crate::padded::live_capacity;
use crate::seen::REMEMBERED;

/// So many sizes that may be constants are remembered.
const MOST_CONSTANTS: usize = 1 << 14;

/// The size of a live value with padding, among the sizes of a call.
const ANY: i64 = -1;

/// The sizes that calls of an operator at a line were given, by dimension.
#[derive(Default)]
pub(crate) struct Given {
    /// Each after the changing size of an argument's dimension.
    sizes: FxHashMap<(Line, u32, usize), VecDeque<(i64, i64)>>,
    /// The last one, and whether there were others.
    last: FxHashMap<(Line, u32, usize), (i64, bool)>,
    /// Those that may equal the size of a live value by chance, by argument and dimension; for gradients, also by the sizes of
    /// the other dimensions.
    constants: FxHashMap<(Line, u32, usize, usize, Vec<i64>), Constant>,
    /// Those of parts of values, by argument and dimension.
    parts: FxHashMap<(Line, u32, usize, usize), Parts>,
}

/// A size that calls at a line were given.
struct Constant {
    size: i64,
    /// Whether there were others.
    varies: bool,
    /// Whether no live value with padding had it when a call was given it.
    is_apart: bool,
}

/// The lengths of parts of values.
#[derive(Default)]
struct Parts {
    /// The sizes of the last value.
    of: Vec<i64>,
    /// The lengths of its parts.
    lengths: Vec<i64>,
    /// The lengths that parts of each value before had, if there were other values.
    common: Option<Vec<i64>>,
}

impl Given {
    /// Whether a size that a call is given for a dimension changes with the changing size of an argument there. It does if
    /// in a call before, with another size, the difference was the same or the ratio, rounded to a whole size, or if it is a
    /// linear function of the size in two calls before; and no call was given the same number with a size of another ratio.
    /// It does as well if two calls before were given two other numbers, and each of these came with one size only, as
    /// images are resized to sizes of their own; and if it is the next multiple of the same number in all calls.
    pub fn follows(&mut self, line: Line, op: u32, axis: usize, changing: i64, given: i64) -> bool {
        if !line.is_known() {
            return false;
        }
        let before = self.sizes.entry((line, op, axis)).or_default();
        let others = || before.iter().filter(|(size, _)| *size != changing);
        let is_alike = |size: i64, other: i64| {
            let (one, two) = (given.saturating_mul(size), other.saturating_mul(changing));
            other - size == given - changing || one.abs_diff(two) <= size.max(changing).unsigned_abs()
        };
        let is_linear = |&(size, other): &(i64, i64)| {
            others().any(|&(third, number)| {
                third != size && (given - other) * (third - size) == (number - other) * (changing - size)
            })
        };
        let is_repeated = |&(size, given): &(i64, i64)| others().any(|pair| pair.1 == given && pair.0 != size);
        let free: Vec<_> = others().filter(|pair| pair.1 != given && !is_repeated(pair)).collect();
        let is_free = free.iter().any(|one| free.iter().any(|two| two.0 != one.0 && two.1 != one.1));
        // Rounded sizes may be equal for several of the argument.
        let is_constant = others().any(|&(size, other)| other == given && !is_alike(size, other));
        let follows = others().any(|pair| pair.1 != given && (is_alike(pair.0, pair.1) || is_linear(pair)));
        let unit = others().fold(given, |unit, pair| gcd(unit, pair.1));
        let is_next = |&(size, given): &(i64, i64)| (0..unit).contains(&(given - size));
        let is_multiple = is_next(&(changing, given)) && others().all(is_next) && others().any(|pair| pair.1 != given);
        let is_shown = is_free || is_multiple || follows && !is_constant;
        if !before.contains(&(changing, given)) {
            before.push_back((changing, given));
        }
        if before.len() > REMEMBERED {
            before.pop_front();
        }
        is_shown
    }

    /// Whether calls at a line were given several sizes for a dimension.
    pub fn varies(&mut self, line: Line, op: u32, axis: usize, given: i64) -> bool {
        let (last, varies) = self.last.entry((line, op, axis)).or_insert((given, false));
        *varies |= *last != given;
        line.is_known() && *varies
    }

    /// The sizes of a tensor, argument number `argument` of a call, that a live value with padding has by chance: calls at the
    /// line had no others, and had them while no such value did. All gradients of a model are computed at one line. There, only
    /// calls whose other sizes are the same count.
    pub fn constants(&mut self, line: Line, op: u32, argument: usize, sizes: &[i64]) -> Vec<Changing> {
        if !line.is_known() {
            return Vec::new();
        }
        if self.constants.len() > MOST_CONSTANTS {
            self.constants.clear();
        }
        let is_live: Vec<bool> = sizes.iter().map(|&size| live_capacity(size).is_some()).collect();
        let is_of_autograd = line.is_of_autograd();
        let mut found = Vec::new();
        for (axis, &size) in sizes.iter().enumerate().filter(|(_, size)| **size > 1) {
            let other = |(place, &size): (usize, &i64)| if place == axis || is_live[place] { ANY } else { size };
            let others = if is_of_autograd { sizes.iter().enumerate().map(other).collect() } else { Vec::new() };
            let new = || Constant { size, varies: false, is_apart: false };
            let known = self.constants.entry((line, op, argument, axis, others)).or_insert_with(new);
            known.varies |= known.size != size;
            known.is_apart |= !is_live[axis];
            if known.is_apart && !known.varies && is_live[axis] {
                found.push(Changing::Constant(size));
            }
        }
        found
    }

    /// The lengths of an argument that calls at a line take from each value, while the sizes of the values change. `of` are
    /// the sizes of the value, and `sizes` those of the argument. A length that the value has is no part.
    pub fn parts_that_stay(&mut self, place: (Line, u32, usize), of: &[i64], sizes: &[i64]) -> Vec<i64> {
        let lengths = sizes.iter().copied().enumerate().filter(|(_, length)| *length > 1 && !of.contains(length));
        lengths.filter(|&(axis, length)| self.takes_same(place, axis, of, length)).map(|(_, length)| length).collect()
    }

    fn takes_same(&mut self, (line, op, argument): (Line, u32, usize), axis: usize, of: &[i64], length: i64) -> bool {
        let parts = self.parts.entry((line, op, argument, axis)).or_default();
        if parts.of != of {
            let lengths = std::mem::take(&mut parts.lengths);
            parts.common = match parts.common.take() {
                None => (!parts.of.is_empty()).then_some(lengths),
                Some(common) => Some(common.into_iter().filter(|length| lengths.contains(length)).collect()),
            };
            parts.of = of.to_vec();
        }
        if !parts.lengths.contains(&length) {
            parts.lengths.push(length);
        }
        line.is_known() && parts.common.as_ref().is_some_and(|common| common.contains(&length))
    }
}

/// The greatest common divisor.
fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a.abs() } else { gcd(b, a % b) }
}
