//! View operators as strides over a dense tensor.

use stablehlo::{Builder, DType, Value, count_by};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::spec::TensorSpec;
use crate::strides::contiguous_strides;
use crate::view;

/// Computes the view that a view operator returns for a dense tensor.
pub(crate) type MakeView = fn(&Cx<'_>, TensorSpec) -> Result<TensorSpec>;

/// The view of all of a dense tensor.
pub(crate) fn whole(x: Value<'_>) -> TensorSpec {
    let sizes = x.dims();
    TensorSpec {
        storage: 0,
        dtype: x.dtype(),
        strides: contiguous_strides(&sizes),
        sizes,
        offset: 0,
        is_conj: false,
        is_neg: false,
        offset_input: None,
    }
}

/// `base` after writing `value` through a view of it.
pub(crate) fn written<'b>(base: Value<'b>, spec: &TensorSpec, value: Value<'b>) -> Value<'b> {
    let value = value.convert(base.dtype()).broadcast_to(&spec.sizes);
    view::write(Some(base), base.ty().size_bytes(), spec, value, None).reshape(&base.dims())
}

/// `select.int`.
pub(crate) fn selected(cx: &Cx<'_>, mut spec: TensorSpec) -> Result<TensorSpec> {
    let axis = cx.axis_arg("dim", spec.sizes.len())?;
    let size = spec.sizes.get(axis).copied().unwrap_or(0);
    let index = from_start(cx.int("index")?, size);
    if !(0..size).contains(&index) {
        return Err(Error::index(format!("select(): index {index} out of range for a dimension of size {size}")));
    }
    spec.offset += index * spec.strides.remove(axis);
    spec.sizes.remove(axis);
    Ok(spec)
}

/// `slice.Tensor`.
pub(crate) fn sliced(cx: &Cx<'_>, mut spec: TensorSpec) -> Result<TensorSpec> {
    let axis = cx.axis_arg("dim", spec.sizes.len())?;
    let Some(&size) = spec.sizes.get(axis) else {
        return Err(Error::index("slice() cannot be applied to a 0-dim tensor."));
    };
    let step = cx.int_or_none("step").unwrap_or(1).max(1);
    let start = from_start(cx.int_or_none("start").unwrap_or(0), size).clamp(0, size);
    let end = from_start(cx.int_or_none("end").unwrap_or(i64::MAX), size).clamp(start, size);
    spec.offset += start * spec.strides[axis];
    spec.sizes[axis] = count_by(end - start, step);
    // A dimension of one element takes any stride.
    spec.strides[axis] = spec.strides[axis].saturating_mul(step);
    Ok(spec)
}

/// `diagonal`.
pub(crate) fn diagonal(cx: &Cx<'_>, spec: TensorSpec) -> Result<TensorSpec> {
    let rank = spec.sizes.len();
    let (a, b) = (cx.axis_arg("dim1", rank)?, cx.axis_arg("dim2", rank)?);
    if a == b || rank < 2 {
        return Err(Error::runtime("diagonal dimensions cannot be identical"));
    }
    Ok(diagonal_of(spec, cx.int("offset")?, a, b))
}

/// The diagonal of two dimensions as the last dimension.
pub(crate) fn diagonal_of(mut spec: TensorSpec, offset: i64, a: usize, b: usize) -> TensorSpec {
    let (rows, columns) = (spec.sizes[a], spec.sizes[b]);
    let length = if offset >= 0 { rows.min(columns - offset) } else { (rows + offset).min(columns) }.max(0);
    if length > 0 {
        spec.offset += if offset >= 0 { offset * spec.strides[b] } else { -offset * spec.strides[a] };
    }
    let stride = spec.strides[a] + spec.strides[b];
    for axis in [a.max(b), a.min(b)] {
        spec.sizes.remove(axis);
        spec.strides.remove(axis);
    }
    spec.sizes.push(length);
    spec.strides.push(stride);
    spec
}

/// `as_strided` over the dense tensor's own storage.
pub(crate) fn strided(cx: &Cx<'_>, spec: TensorSpec) -> Result<TensorSpec> {
    let numel: i64 = spec.sizes.iter().product();
    let (sizes, strides) = (cx.ints("size")?, cx.ints("stride")?);
    let offset = cx.int_or_none("storage_offset").unwrap_or(0);
    let reach: i64 = sizes.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum();
    if !sizes.contains(&0) && !(0..numel).contains(&(offset + reach)) {
        return Err(Error::runtime(format!(
            "as_strided: sizes {sizes:?}, strides {strides:?}, storage offset {offset} are out of bounds for a \
             tensor of {numel} elements"
        )));
    }
    Ok(TensorSpec { sizes, strides, offset, ..spec })
}

pub(crate) fn from_start(index: i64, size: i64) -> i64 {
    if index < 0 { index + size } else { index }
}

/// The windows of `unfold`: dimension `axis` becomes the window's number and the element in the window.
pub(crate) fn windows<'b>(b: &'b Builder, sizes: &[i64], axis: usize, size: i64, step: i64) -> Places<'b> {
    let count = (sizes[axis] - size) / step.max(1) + 1;
    let starts = b.iota(DType::of_counts(sizes[axis]), &[count.max(0)], 0) * step;
    Places::runs(sizes, axis, starts, size)
}
