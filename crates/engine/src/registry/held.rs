//! The values of a call's storages, with the factors of their dimensions.

use stablehlo::Extent;

use super::symbols::{Place, Symbols, fixed};
use super::types::Types;
use crate::padded::{self, PaddedFactor};
use crate::storage::Storage;

/// The dimensions of a value in the order of memory, with the factors of each.
pub(crate) type Axes = Vec<Vec<PaddedFactor>>;

/// The value of a storage: the factors of each of its dimensions.
pub(super) struct Held {
    pub axes: Vec<Vec<Place>>,
    pub is_written: bool,
}

impl Held {
    pub fn is_bounded(&self) -> bool {
        self.axes.iter().flatten().any(|place| place.factor.size.is_some())
    }

    pub fn wanted(&self) -> Axes {
        let factor = |place: &Place| PaddedFactor {
            capacity: place.factor.capacity,
            actual: place.actual,
            is_bounded: place.factor.size.is_some(),
        };
        self.axes.iter().map(|axis| axis.iter().map(factor).collect()).collect()
    }

    pub fn dims(&self) -> Vec<i64> {
        self.axes.iter().map(|axis| axis.iter().map(|place| place.factor.capacity).product()).collect()
    }

    pub fn extents(&self) -> Vec<Extent> {
        let extent = |axis: &Vec<Place>| match axis.iter().any(|place| place.factor.size.is_some()) {
            true => Extent(axis.iter().map(|place| place.factor).collect()),
            false => Extent::default(),
        };
        self.axes.iter().map(extent).collect()
    }
}

/// The factors of a storage whose value was made with padding.
pub(super) fn padded_axes(storage: &Storage) -> Option<Axes> {
    storage.padded().filter(|_| storage.has_padding()).map(|padded| padded.held())
}

/// The element type of a storage's value; `Some(None)` if it has none.
pub(super) fn storage_dtype(storage: &Storage, types: &Types) -> Option<Option<stablehlo::DType>> {
    match storage.base() {
        Ok(ty) => Some(Some(types.get(ty).dtype)),
        Err(_) => Some(storage.padded().map(|padded| padded.dtype)),
    }
}

/// The factors of a value with padding.
pub(super) fn places(axes: &Axes, symbols: &Symbols) -> Option<Vec<Vec<Place>>> {
    let place = |factor: &PaddedFactor| match factor.is_bounded {
        true => Some(Place { actual: factor.actual, factor: symbols.factor(symbols.known(factor.actual)?) }),
        false => Some(fixed(factor.actual)),
    };
    // A multiple of a size has the same valid positions as a size of its own, which another argument may have.
    let multiple = |axis: &Vec<PaddedFactor>| {
        let [(capacity, actual)] = padded::layout(axis)[..] else { return None };
        if let Some(&(_, length)) = symbols.rows.iter().find(|rows| rows.0 == actual) {
            let factor = symbols.factor(symbols.known(actual / length)?);
            return Some(vec![Place { actual: actual / length, factor }, fixed(length)]);
        }
        let factor = symbols.factor(symbols.known(actual)?);
        (axis.len() > 1 && factor.capacity == capacity).then(|| vec![Place { actual, factor }])
    };
    axes.iter().map(|axis| multiple(axis).or_else(|| axis.iter().map(place).collect())).collect()
}

/// The value of a storage that was made with padding.
pub(super) fn padded(storage: &Storage, symbols: &Symbols) -> Option<Option<Held>> {
    let axes = places(&padded_axes(storage)?, symbols)?;
    Some(Some(Held { axes, is_written: true }))
}

/// The exact value of a storage; `None` if it has none. If `changes`, dimensions change that equal a size that does, or
/// a product of factors of an argument. A written value stays exact: a parameter must not become padded.
pub(super) fn exact(storage: &Storage, types: &Types, symbols: &Symbols, changes: bool) -> Option<Held> {
    let ty = storage.base().ok()?;
    let axis = |&size: &i64| match symbols.known(size).filter(|_| changes) {
        Some(symbol) => vec![Place { actual: size, factor: symbols.factor(symbol) }],
        None => symbols.merged(size).filter(|_| changes).unwrap_or_else(|| vec![fixed(size)]),
    };
    Some(Held { axes: types.get(ty).dims.iter().map(axis).collect(), is_written: true })
}
