//! Bounded dimensions. In the program such a dimension has a fixed size, its capacity. A 0-d value gives its valid
//! length at run time.
//!
//! The elements after the valid length are padding. Padding may have any value, including NaN. No operation may let
//! padding change a valid element. An operation that combines elements along a bounded dimension replaces the padding
//! with its neutral element first. If it cannot, the builder refuses it ([`crate::Refusal::Bounded`]). The builder
//! also refuses every operation that does not define the extents of its result.

use std::rc::Rc;

use crate::builder::{Builder, Type, Value};
use crate::dtype::{DType, Number};
use crate::element_types::computes;

/// A factor of a dimension: `capacity` positions. All are valid, or as many as the builder's size number `size` says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Factor {
    pub capacity: i64,
    pub size: Option<u32>,
}

/// The valid positions of a dimension. A dimension into which others were merged is the product of its factors, the
/// outermost first. An element is valid if each of its coordinates is valid. Without factors, all positions are
/// valid.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Extent(pub Vec<Factor>);

impl Extent {
    fn of(factors: Vec<Factor>) -> Extent {
        if factors.iter().all(|factor| factor.size.is_none()) { Extent::default() } else { Extent(factors) }
    }

    /// The extent of a dimension of `dim` positions, where `dim` is a multiple of `capacity`. The valid positions are
    /// at the start; there are `dim / capacity` times the size of them.
    pub fn multiple(size: u32, capacity: i64, dim: i64) -> Extent {
        let bounded = Factor { capacity, size: Some(size) };
        match dim / capacity.max(1) {
            0 | 1 => Extent(vec![bounded]),
            parts => Extent(vec![bounded, Factor { capacity: parts, size: None }]),
        }
    }

    pub fn is_whole(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the valid positions are at the start. The index of a valid element is then the same as without
    /// padding.
    pub fn is_prefix(&self) -> bool {
        self.0.iter().skip(1).all(|factor| factor.size.is_none())
    }

    /// The numbers of the sizes, ascending.
    pub fn sizes(&self) -> Vec<u32> {
        let mut sizes: Vec<u32> = self.0.iter().filter_map(|factor| factor.size).collect();
        sizes.sort_unstable();
        sizes
    }

    /// The extent of a dimension that two values share. If all positions are valid in one of the values, such as a
    /// constant, this is the extent of the other.
    fn merge(&self, other: &Extent) -> Option<Extent> {
        if other.is_whole() || self == other {
            return Some(self.clone());
        }
        self.is_whole().then(|| other.clone())
    }
}

fn merge_all(a: &[Extent], b: &[Extent]) -> Option<Vec<Extent>> {
    a.iter().zip(b).map(|(a, b)| a.merge(b)).collect()
}

/// The extents after a reshape. `None` if the reshape splits a bounded factor.
fn reshaped(from: &[i64], extents: &[Extent], to: &[i64]) -> Option<Vec<Extent>> {
    let mut factors: Vec<Factor> = Vec::new();
    for (&dim, extent) in from.iter().zip(extents).rev() {
        match extent.is_whole() {
            // A dimension of size 0 or 1 needs no factor.
            true if dim <= 1 => {}
            true => factors.push(Factor { capacity: dim, size: None }),
            false => factors.extend(extent.0.iter().rev()),
        }
    }
    let mut result = Vec::with_capacity(to.len());
    for &dim in to {
        let (mut missing, mut own) = (dim, Vec::<Factor>::new());
        while missing > 1 {
            let factor = factors.pop()?;
            let taken = if factor.size.is_none() && missing < factor.capacity { missing } else { factor.capacity };
            if missing % taken != 0 || factor.capacity % taken != 0 {
                return None;
            }
            if taken < factor.capacity {
                factors.push(Factor { capacity: factor.capacity / taken, size: None });
            }
            missing /= taken;
            match own.last_mut() {
                Some(last) if last.size.is_none() && factor.size.is_none() => last.capacity *= taken,
                _ => own.push(Factor { capacity: taken, ..factor }),
            }
        }
        result.push(Extent::of(own));
    }
    factors.is_empty().then_some(result)
}

impl Builder {
    /// Adds a size, a 0-d int64 value that is at most `capacity`. Returns its number.
    pub fn add_size<'b>(&'b self, size: Value<'b>, capacity: i64) -> u32 {
        let mut sizes = self.sizes.borrow_mut();
        sizes.push((size.id, capacity));
        sizes.len() as u32 - 1
    }

    /// Whether the function has bounded dimensions.
    pub fn is_bounded(&self) -> bool {
        !self.sizes.borrow().is_empty()
    }

    /// The value of a size that [`Builder::add_size`] added.
    pub fn size(&self, number: u32) -> Value<'_> {
        Value { builder: self, id: self.sizes.borrow()[number as usize].0 }
    }

    /// The capacity of a size.
    pub fn capacity(&self, number: u32) -> i64 {
        self.sizes.borrow()[number as usize].1
    }

    /// Emits an elementwise operation.
    pub(crate) fn elementwise<'b>(
        &'b self,
        name: &str,
        operands: &[Value<'b>],
        attributes: &str,
        ty: Type,
    ) -> Value<'b> {
        if operands.iter().any(|operand| operand.dtype() == DType::C32) && computes(name) {
            let wide = |dtype| if dtype == DType::C32 { DType::C64 } else { dtype };
            let operands: Vec<Value<'b>> = operands.iter().map(|each| each.convert(wide(each.dtype()))).collect();
            let computed = if ty.dtype == DType::F16 { DType::F32 } else { wide(ty.dtype) };
            let computed = Type { dtype: computed, dims: ty.dims };
            return self.elementwise(name, &operands, attributes, computed).convert(ty.dtype);
        }
        let extents = self.merged(operands);
        self.emit(name, operands, attributes, ty).with_extents(extents)
    }

    /// The common extents of values of one shape.
    pub(crate) fn merged(&self, values: &[Value<'_>]) -> Option<Vec<Extent>> {
        let mut bounded = values.iter().filter_map(|value| value.known_extents());
        let mut merged = bounded.next()?.to_vec();
        for extents in bounded {
            match merge_all(&merged, &extents) {
                Some(both) if merged.len() == extents.len() => merged = both,
                _ => self.refuse_bounded("dimensions that are bounded differently meet"),
            }
        }
        Some(merged)
    }

    /// A mask of the valid positions of a dimension: a vector of booleans. `None` if all are valid.
    fn valid_positions(&self, dim: i64, extent: &Extent) -> Option<Value<'_>> {
        let mut real: Option<Value<'_>> = None;
        let mut inner = dim;
        for factor in &extent.0 {
            let outer = inner;
            inner /= factor.capacity.max(1);
            let Some(size) = factor.size else { continue };
            let place = self.iota(DType::I32, &[dim], 0);
            let place = if outer == dim { place } else { place % outer };
            let place = if inner == 1 { place } else { place / inner };
            let below = place.lt(self.size(size).convert(DType::I32));
            real = Some(real.map_or(below, |real| real & below));
        }
        real
    }
}

impl<'b> Value<'b> {
    fn known_extents(self) -> Option<Rc<[Extent]>> {
        self.builder.extents.borrow().get(&self.id).cloned()
    }

    /// The extent of each dimension.
    pub fn extents(self) -> Vec<Extent> {
        self.known_extents().map_or_else(|| vec![Extent::default(); self.rank()], |extents| extents.to_vec())
    }

    pub fn extent(self, axis: usize) -> Extent {
        self.known_extents().and_then(|extents| extents.get(axis).cloned()).unwrap_or_default()
    }

    pub fn is_bounded(self) -> bool {
        self.known_extents().is_some()
    }

    pub fn is_bounded_along(self, axes: &[usize]) -> bool {
        axes.iter().any(|&axis| !self.extent(axis).is_whole())
    }

    /// Sets the extents of a new value.
    pub fn with_extents(self, extents: impl Into<Option<Vec<Extent>>>) -> Value<'b> {
        let extents = extents.into().filter(|extents| extents.iter().any(|extent| !extent.is_whole()));
        if let Some(extents) = extents {
            let fits = extents.iter().zip(self.dims()).all(|(extent, dim)| {
                extent.is_whole() || extent.0.iter().map(|factor| factor.capacity).product::<i64>() == dim
            });
            if !fits || extents.len() != self.rank() {
                self.builder.refuse_bounded("a dimension is not as long as its bound");
            }
            self.builder.extents.borrow_mut().insert(self.id, extents.into());
        }
        self
    }

    /// A value with the same elements, all of them valid. Padding counts as valid.
    pub fn without_extents(self) -> Value<'b> {
        if self.is_bounded() { self.builder.emit("stablehlo.reshape", &[self], "", self.ty()) } else { self }
    }

    /// This value with another extent of one dimension.
    pub fn with_extent(self, axis: usize, extent: Extent) -> Value<'b> {
        let mut extents = self.extents();
        extents[axis] = extent;
        self.without_extents().with_extents(extents)
    }

    /// This value with all positions of one dimension valid.
    pub fn whole_along(self, axis: usize) -> Value<'b> {
        self.with_extent(axis, Extent::default())
    }

    /// This value with the extents of `other`, which has the same shape. Refuses it where both have padding, but at other
    /// positions.
    pub fn bounded_like(self, other: Value<'b>) -> Value<'b> {
        let Some(extents) = other.known_extents() else { return self };
        self.require_same_padding(other, 0..self.rank());
        self.without_extents().with_extents(extents.to_vec())
    }

    /// Refuses an operation that counts positions along an axis if there is padding between valid positions.
    pub fn require_prefix(self, axis: usize, what: &str) {
        if !self.extent(axis).is_prefix() {
            self.builder.refuse_bounded(what);
        }
    }

    /// Refuses an operation whose result depends on the sizes of `axes`, which it takes as constants.
    pub fn require_whole(self, axes: &[usize], what: &str) {
        if self.is_bounded_along(axes) {
            self.builder.refuse_bounded(format!("{what} over a dimension whose size changes"));
        }
    }

    /// This value with the padding along an axis replaced by `fill` (0-d). All positions are then valid. Refuses
    /// `what` if there is padding between valid positions.
    pub fn filled_along(self, axis: usize, fill: Value<'b>, what: &str) -> Value<'b> {
        self.require_prefix(axis, what);
        self.masked(&[axis], fill).whole_along(axis)
    }

    /// [`Value::filled_along`] for each bounded dimension in `axes`.
    pub fn filled(
        self,
        axes: impl IntoIterator<Item = usize>,
        fill: impl Fn(Value<'b>) -> Value<'b>,
        what: &str,
    ) -> Value<'b> {
        let bounded = axes.into_iter().filter(|&axis| self.is_bounded_along(&[axis]));
        bounded.fold(self, |value, axis| value.filled_along(axis, fill(self), what))
    }

    /// [`Value::filled`] with zeros.
    pub fn zero_filled(self, axes: impl IntoIterator<Item = usize>, what: &str) -> Value<'b> {
        self.filled(axes, |value| value.builder.scalar(0, value.dtype()), what)
    }

    /// The valid length of a dimension, 0-d.
    pub fn size(self, axis: usize, dtype: DType) -> Value<'b> {
        self.count(&[axis], dtype)
    }

    /// The number of valid elements that a reduction over `axes` combines, 0-d.
    pub fn count(self, axes: &[usize], dtype: DType) -> Value<'b> {
        let mut known = 1;
        let mut sizes = Vec::new();
        for &axis in axes {
            match self.extent(axis) {
                extent if extent.is_whole() => known *= self.dim(axis),
                extent => {
                    known *= extent.0.iter().filter(|f| f.size.is_none()).map(|f| f.capacity).product::<i64>();
                    sizes.extend(extent.sizes());
                }
            }
        }
        let known = self
            .builder
            .scalar(if dtype.is_integer() { Number::Int(known) } else { Number::Float(known as f64) }, dtype);
        sizes.into_iter().fold(known, |count, size| count * self.builder.size(size).convert(dtype))
    }

    /// This value with the padding along `axes` replaced by `neutral` (0-d).
    pub fn masked(self, axes: &[usize], neutral: Value<'b>) -> Value<'b> {
        self.masked_by(&self.extents(), axes, neutral)
    }

    /// [`Value::masked`] with the padding that `extents` describe.
    pub(crate) fn masked_by(self, extents: &[Extent], axes: &[usize], neutral: Value<'b>) -> Value<'b> {
        if let Some((source, permutation)) = self.transposed_from() {
            // Masks before the transpose, so that a product can use the transpose directly.
            let mut moved = vec![Extent::default(); extents.len()];
            axes.iter().for_each(|&axis| moved[permutation[axis]] = extents[axis].clone());
            let axes: Vec<usize> = axes.iter().map(|&axis| permutation[axis]).collect();
            return source.masked_by(&moved, &axes, neutral).transpose(&permutation);
        }
        let mut masked = self;
        for &axis in axes {
            if let Some(real) = self.builder.valid_positions(self.dim(axis), &extents[axis]) {
                masked = real.broadcast_in_dim(&self.dims(), &[axis]).select(masked, neutral);
            }
        }
        masked
    }

    /// The extents after a reshape that keeps the elements at their positions. `None` if there is no such reshape.
    pub fn reshaped_to(self, dims: &[i64]) -> Option<Vec<Extent>> {
        let is_possible = self.numel() == dims.iter().product::<i64>();
        is_possible.then(|| reshaped(&self.dims(), &self.extents(), dims)).flatten()
    }

    pub(crate) fn reshaped_extents(self, dims: &[i64]) -> Option<Vec<Extent>> {
        let extents = self.known_extents()?;
        let result = reshaped(&self.dims(), &extents, dims);
        if result.is_none() {
            self.builder.refuse_bounded("a reshape that cuts through a bounded dimension");
        }
        result
    }

    /// The extents of a result whose dimension `i` is dimension `from[i]` of this value, or a new dimension without
    /// padding.
    pub(crate) fn moved_extents(self, from: &[Option<usize>]) -> Option<Vec<Extent>> {
        let extents = self.known_extents()?;
        Some(from.iter().map(|place| place.map_or_else(Extent::default, |i| extents[i].clone())).collect())
    }

    /// The extents of this value. Refuses the operation `what` if it changes (not `untouched`) a bounded dimension.
    pub(crate) fn extents_if(self, what: &str, untouched: impl Fn(usize) -> bool) -> Option<Vec<Extent>> {
        let extents = self.known_extents()?;
        if (0..extents.len()).any(|axis| !extents[axis].is_whole() && !untouched(axis)) {
            self.builder.refuse_bounded(format!("{what} along a bounded dimension"));
        }
        Some(extents.to_vec())
    }

    /// Refuses two values with padding at different positions of these dimensions.
    pub fn require_same_padding(self, other: Value<'b>, axes: impl IntoIterator<Item = usize>) {
        for axis in axes {
            self.common_extent(axis, other, axis);
        }
    }

    /// The common extents of a dimension of this value and one of another. Refuses padding at different positions.
    pub(crate) fn common_extent(self, axis: usize, other: Value<'b>, other_axis: usize) -> Extent {
        self.extent(axis).merge(&other.extent(other_axis)).unwrap_or_else(|| {
            self.builder.refuse_bounded("dimensions that are bounded differently meet");
            Extent::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bounded(capacity: i64, size: u32) -> Extent {
        Extent(vec![Factor { capacity, size: Some(size) }])
    }

    #[test]
    fn merged_dimensions_keep_their_factors() {
        let extents = [Extent::default(), bounded(8, 0), Extent::default()];
        let merged = reshaped(&[4, 8, 6], &extents, &[32, 6]).unwrap();
        assert_eq!(merged[0].0.len(), 2);
        assert!(!merged[0].is_prefix() && merged[1].is_whole());
        assert_eq!(reshaped(&[32, 6], &merged, &[4, 8, 2, 3]).unwrap()[1], bounded(8, 0));
        assert_eq!(reshaped(&[32, 6], &merged, &[2, 2, 8, 6]).unwrap()[2], bounded(8, 0));
        assert_eq!(reshaped(&[32, 6], &merged, &[8, 4, 6]), None);
        let empty = reshaped(&[8, 0], &[bounded(8, 0), Extent::default()], &[8, 1, 0]).unwrap();
        assert_eq!(empty[0], bounded(8, 0));
        assert!(reshaped(&[8, 6], &[bounded(8, 0), Extent::default()], &[48]).unwrap()[0].is_prefix());
    }

    #[test]
    fn reductions_mask_the_padding() {
        let b = Builder::default();
        let size = b.parameter(Type::new(DType::I64, &[]));
        let number = b.add_size(size, 8);
        let x = b.parameter(Type::new(DType::F32, &[4, 8])).with_extents(vec![Extent::default(), bounded(8, number)]);
        assert!((x + 1.0).exp().is_bounded());
        assert!(!x.reduce_sum(&[1]).is_bounded());
        assert_eq!(x.reduce_sum(&[0]).extent(0), bounded(8, number));
        assert_eq!(b.refusal(), None);
        let _ = x.reverse(&[1]);
        assert!(b.refusal().is_some());
        let text = b.finish(&[x]).unwrap().module(&[]);
        assert_eq!(text.matches("stablehlo.select").count(), 1, "{text}");
    }
}
