//! Positions of elements in dimensions that were merged, and whose factors have padding.

use stablehlo::{Extent, Factor, Value};

/// The factors of a dimension, the outermost first.
pub(crate) fn factors(dim: i64, extent: &Extent) -> Vec<Factor> {
    if extent.is_whole() { vec![Factor { capacity: dim, size: None }] } else { extent.0.clone() }
}

/// Converts between the position of an element in the padded value and its position among the valid elements.
pub(crate) struct Radix(Vec<Factor>);

impl Radix {
    /// For the elements of adjacent dimensions.
    pub fn of(dims: &[i64], extents: &[Extent]) -> Radix {
        Radix(dims.iter().zip(extents).flat_map(|(&dim, extent)| factors(dim, extent)).collect())
    }

    /// From a position in the padded value to the position among the valid elements.
    pub fn real<'b>(&self, place: Value<'b>) -> Value<'b> {
        let (mut rest, mut inner) = (place, place.splat_like(1));
        let mut position = place.splat_like(0);
        for factor in self.0.iter().rev() {
            let capacity = factor.capacity.max(1);
            position = position + rest % capacity * inner;
            (rest, inner) = (rest / capacity, inner * size_like(place, factor));
        }
        position
    }

    /// The inverse of [`Radix::real`].
    pub fn padded<'b>(&self, position: Value<'b>) -> Value<'b> {
        let (mut rest, mut inner) = (position, 1);
        let mut place = position.splat_like(0);
        for factor in self.0.iter().rev() {
            let size = size_like(position, factor);
            place = place + rest % size * inner;
            (rest, inner) = (rest / size, inner * factor.capacity);
        }
        place
    }
}

/// The number of valid positions of a factor, at least 1, of the type and shape of `like`.
fn size_like<'b>(like: Value<'b>, factor: &Factor) -> Value<'b> {
    let b = like.builder();
    match factor.size {
        Some(size) => b.size(size).convert(like.dtype()).max(1).broadcast_to(&like.dims()),
        None => like.splat_like(factor.capacity),
    }
}
