//! How a padded value is laid out in its storage.

use std::sync::Arc;

use stablehlo::{DType, Extent, Type};

use super::held::Axes;
use crate::growth::is_affordable;
use crate::padded::{
    LiveSizes, Padded, PaddedFactor, actual_sizes, copy_runs, held_sizes, padded_factors, walk, with_padding,
};
use crate::placement::Placement;
use crate::storage::{Storage, Value};

/// How a padded value is laid out in its storage.
pub(crate) struct Layout {
    dtype: DType,
    nbytes: usize,
    /// The factors of each dimension of the tensor.
    axes: Axes,
    /// The tensor's dimensions in the order of memory.
    order: Vec<usize>,
}

impl Layout {
    /// A value of the dimensions `actual`, at the start of one of this type.
    pub fn of(ty: &Type, actual: &[i64]) -> Layout {
        Layout::in_order(ty, actual, (0..actual.len()).collect())
    }

    /// The same, where the dimensions lie in memory in this order.
    pub fn in_order(ty: &Type, actual: &[i64], order: Vec<usize>) -> Layout {
        let factor = |(&capacity, &actual)| vec![PaddedFactor { capacity, actual, is_bounded: capacity != actual }];
        let axes: Axes = ty.dims.iter().zip(actual).map(factor).collect();
        Layout { dtype: ty.dtype, nbytes: ty.size_bytes(), axes, order }
    }

    /// A value of this type with these factors, in the order of its dimensions.
    pub fn of_axes(ty: &Type, axes: Axes) -> Layout {
        let order = (0..axes.len()).collect();
        Layout { dtype: ty.dtype, nbytes: ty.size_bytes(), axes, order }
    }

    /// The layout of a value whose sizes are `numbers` where `extents` name them.
    pub fn at(
        dtype: DType,
        base: &Type,
        sizes: &[i64],
        extents: &[Extent],
        order: Vec<usize>,
        numbers: &[i64],
    ) -> Layout {
        let whole = Extent::default();
        let extent = |axis: usize| extents.get(axis).unwrap_or(&whole);
        let axes = (0..sizes.len()).map(|axis| padded_factors(extent(axis), sizes[axis], numbers)).collect();
        Layout { dtype, nbytes: base.size_bytes(), axes, order }
    }

    /// Whether the padding is not too much.
    pub fn is_affordable(&self) -> bool {
        is_affordable(&held_sizes(&self.axes), &self.actual(), self.dtype.size_bytes())
    }

    /// The sizes without padding.
    pub fn actual(&self) -> Vec<i64> {
        actual_sizes(&self.axes)
    }

    /// The elements of a padded value, without its padding.
    pub fn without_padding(&self, bytes: &[u8]) -> Vec<u8> {
        let (axes, order) = (self.axes.clone(), self.order.clone());
        let (element, sizes) = (self.dtype.size_bytes(), self.actual());
        let mut exact = vec![0; sizes.iter().product::<i64>() as usize * element];
        let walks = walk(&axes, &order, &aten::contiguous_strides(&sizes));
        copy_runs(&walks, element, bytes, &mut exact);
        exact
    }

    /// A padded value from elements in the order of memory.
    pub fn with_padding(&self, ty: &Type, exact: &[u8]) -> Vec<u8> {
        let sizes = self.actual();
        let held: Vec<i64> = self.order.iter().map(|&axis| sizes[axis]).collect();
        let mut strides = vec![0; sizes.len()];
        self.order.iter().zip(aten::contiguous_strides(&held)).for_each(|(&axis, stride)| strides[axis] = stride);
        with_padding(&walk(&self.axes, &self.order, &strides), ty, exact)
    }

    pub fn padded(&self, placement: Placement, value: Arc<Value>) -> Padded {
        Padded {
            storage: Storage::with_value(placement, self.nbytes, Some(value)),
            dtype: self.dtype,
            axes: self.axes.clone(),
            order: self.order.clone(),
            is_origin: true,
            _live: LiveSizes::of(&self.axes),
        }
    }
}
