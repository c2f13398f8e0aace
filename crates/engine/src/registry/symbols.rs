//! The sizes of a call that change.

use aten::{Dim, Factor};

use crate::padded::{self, PaddedFactor, live_capacity, live_factors};

/// A size of the call, or the start of a slice.
pub(super) struct Symbol {
    pub actual: i64,
    pub capacity: i64,
    is_start: bool,
}

/// The sizes of a call that change.
#[derive(Default)]
pub(super) struct Symbols {
    pub list: Vec<Symbol>,
    /// The factors of each argument with padding.
    pub merged: Vec<Vec<Place>>,
    /// The dimensions without padding of arguments with padding: how far from the last one, and the size.
    pub stays: Vec<(usize, i64)>,
    /// Sizes that are a number of rows, with the length of a row.
    pub rows: Vec<(i64, i64)>,
    /// The lengths of parts that stay while the lengths of the wholes change.
    pub parts_that_stay: Vec<i64>,
    /// The sizes that live values with padding have by chance.
    pub constants: Vec<i64>,
    /// Whether other live values with padding tell which sizes change, because no argument has padding and the line does not
    /// tell it.
    pub asks_others: bool,
}

impl Symbols {
    pub fn known(&self, actual: i64) -> Option<u32> {
        let place = self.list.iter().position(|symbol| !symbol.is_start && symbol.actual == actual);
        place.filter(|_| actual > 1).map(|place| place as u32)
    }

    /// The symbol of a size, also if only other live values have it.
    pub fn live(&mut self, actual: i64) -> Option<u32> {
        if let Some(known) = self.known(actual) {
            return Some(known);
        }
        if self.asks_others && !self.constants.contains(&actual) { self.in_use(actual) } else { None }
    }

    /// The symbol of a size that any live value has.
    pub fn in_use(&mut self, actual: i64) -> Option<u32> {
        self.known(actual).or_else(|| {
            let capacity = live_capacity(actual).filter(|_| actual > 1)?;
            Some(self.add(actual, capacity))
        })
    }

    /// The factors of a size that is the product of merged dimensions of a live value.
    pub fn product_in_use(&mut self, actual: i64) -> Option<Vec<Place>> {
        let mut place = |factor: &PaddedFactor| match factor.is_bounded {
            true => {
                let symbol = self.known(factor.actual).unwrap_or_else(|| self.add(factor.actual, factor.capacity));
                Place { actual: factor.actual, factor: self.factor(symbol) }
            }
            false => fixed(factor.actual),
        };
        Some(live_factors(actual)?.iter().map(&mut place).collect())
    }

    /// Adjacent factors of an argument whose product is a size, if it changes.
    pub fn merged(&self, size: i64) -> Option<Vec<Place>> {
        let fits = |run: &&[Place]| {
            run.iter().any(|place| place.factor.size.is_some())
                && run.iter().map(|place| place.actual).product::<i64>() == size
        };
        self.merged.iter().find_map(|places| {
            let runs =
                (0..places.len()).flat_map(|start| (start + 2..=places.len()).map(move |end| &places[start..end]));
            runs.filter(fits).map(<[Place]>::to_vec).next()
        })
    }

    /// The size of a dimension in which a view repeats elements. It may equal a size that changes by chance: then that
    /// of another argument at this place, `from_last`, stays.
    pub fn repeated(&mut self, size: i64, from_last: usize) -> Dim {
        if self.stays.contains(&(from_last, size)) {
            return Dim::known(size);
        }
        match self.live(size) {
            Some(symbol) => Dim::new(self.factor(symbol).capacity, vec![symbol]),
            None => self.merged(size).map_or_else(
                || Dim::known(size),
                |places| Dim::of(&places.iter().map(|place| place.factor).collect::<Vec<_>>()),
            ),
        }
    }

    /// Chooses how a dimension of a value is written as factors, where a view of these sizes and strides needs another form
    /// with the same valid positions. `axes` are the dimensions of the value in the order of memory.
    ///
    /// A part that cuts through the inner factors, as in `x.flatten(1, 2)[:, :n]`, is one of a size of its own. Rows of
    /// all values of an outer dimension, as in `x.view(-1, 16)` of several sequences, need the length of a row as a factor.
    pub fn choose_factors(&mut self, axes: &[Vec<PaddedFactor>], sizes: &[i64], strides: &[i64]) {
        let dims = || sizes.iter().zip(strides).map(|(&size, &stride)| (size, stride));
        let mut next = 1;
        for axis in axes.iter().rev() {
            let weight = next;
            next *= axis.iter().map(|factor| factor.actual).product::<i64>();
            let [(capacity, actual)] = padded::layout(axis)[..] else { continue };
            if axis.iter().all(|factor| !factor.is_bounded) {
                continue;
            }
            let inner = actual / axis[0].actual;
            let cuts = |size: i64| (inner + 1..actual).contains(&size) && size % inner != 0;
            if axis.len() > 1
                && self.known(actual).is_none()
                && dims().any(|(size, stride)| stride == weight && cuts(size))
            {
                self.add(actual, capacity);
            }
            let is_row = |&(length, stride): &(i64, i64)| {
                let goes_on = |(count, step)| step == length * weight && count > actual / length;
                let divides = length > 1 && actual % length == 0 && capacity % length == 0;
                stride == weight && divides && length < actual && dims().any(goes_on)
            };
            if let ([_], Some((length, _))) = (&axis[..], dims().find(is_row)) {
                let (rows, most) = (actual / length, capacity / length);
                let symbol = self.known(rows).unwrap_or_else(|| self.add(rows, most));
                if rows > 1 && self.list[symbol as usize].capacity == most {
                    self.rows.push((actual, length));
                }
            }
        }
    }

    pub fn add(&mut self, actual: i64, capacity: i64) -> u32 {
        self.list.push(Symbol { actual, capacity, is_start: false });
        self.list.len() as u32 - 1
    }

    /// Numbers that are inputs, but no sizes. Zeros may be constants: padding by none costs nothing then.
    pub fn numbers(&mut self, ints: &[i64], also_zeros: bool) -> Vec<Dim> {
        let number = |&int: &i64| if int != 0 || also_zeros { self.number(int) } else { Dim::known(0) };
        ints.iter().map(number).collect()
    }

    /// A number that is an input, but no size.
    pub fn number(&mut self, int: i64) -> Dim {
        Dim::new(Dim::ANY, vec![self.add_start(int, Dim::ANY)])
    }

    pub fn has_sizes(&self) -> bool {
        self.list.iter().any(|symbol| !symbol.is_start)
    }

    pub fn add_start(&mut self, actual: i64, capacity: i64) -> u32 {
        self.list.push(Symbol { actual, capacity, is_start: true });
        self.list.len() as u32 - 1
    }

    pub fn capacities(&self) -> Vec<i64> {
        self.list.iter().map(|symbol| symbol.capacity).collect()
    }

    pub fn factor(&self, symbol: u32) -> Factor {
        Factor { capacity: self.list[symbol as usize].capacity, size: Some(symbol) }
    }

    pub fn dim(&self, size: i64) -> Dim {
        match self.known(size) {
            Some(symbol) => Dim::new(self.factor(symbol).capacity, vec![symbol]),
            None => Dim::known(size),
        }
    }
}

/// A factor of a value's dimensions, outermost first.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub actual: i64,
    pub factor: Factor,
}

pub(super) fn fixed(size: i64) -> Place {
    Place { actual: size, factor: Factor { capacity: size, size: None } }
}
