//! Reductions that rows of several families are made of.

use stablehlo::{DType, Value};

use crate::cx::Cx;
use crate::error::Result;

/// `f` over the argument `dim` of `x` (every dimension when absent or empty), minding `keepdim`.
pub(crate) fn reduced<'b>(
    cx: &Cx<'b>,
    x: Value<'b>,
    f: impl FnOnce(Value<'b>, &[usize]) -> Value<'b>,
) -> Result<Value<'b>> {
    let axes = cx.axes_arg("dim", x.rank())?;
    keep(cx, f(x, &axes), &axes)
}

/// Puts the reduced `axes` back as dimensions of size 1 if the argument `keepdim` says so.
pub(crate) fn keep<'b>(cx: &Cx<'b>, reduced: Value<'b>, axes: &[usize]) -> Result<Value<'b>> {
    Ok(if cx.bool("keepdim")? { reduced.keep_dims(axes) } else { reduced })
}

/// Integers and booleans as int64, in which PyTorch adds and multiplies them.
pub(crate) fn widened(x: Value<'_>) -> Value<'_> {
    match x.dtype() {
        t if t.is_integer() || t == DType::Bool => x.convert(DType::I64),
        _ => x,
    }
}

/// NaN over nothing.
pub(crate) fn mean<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let sum = x.reduce_sum(axes);
    sum / x.count(axes, sum.dtype())
}

/// The mean over `axes`, kept as dimensions of size 1, and the sum of squared distances from it, also
/// kept. Two passes: the sum of squares minus the square of the sum would cancel.
pub(crate) fn moments<'b>(x: Value<'b>, axes: &[usize]) -> (Value<'b>, Value<'b>) {
    let mean = mean(x, axes).keep_dims(axes);
    (mean, squared_magnitude(x - mean).reduce_sum(axes).keep_dims(axes))
}

/// `|x|²`, real.
pub(crate) fn squared_magnitude(x: Value<'_>) -> Value<'_> {
    if x.dtype().is_complex() { x.real().square() + x.imag().square() } else { x.square() }
}

/// `log Σ exp x`, shifted by the largest element so that nothing overflows.
pub(crate) fn log_sum_exp<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let largest = x.real().reduce_max(axes);
    let shift = largest.is_finite().select(largest, 0).convert(x.dtype());
    (x - shift.keep_dims(axes)).exp().reduce_sum(axes).log() + shift
}

pub(crate) type Extreme = for<'b> fn(Value<'b>, &[usize]) -> Value<'b>;

/// The extreme elements along the axis and their positions (int64); of equal ones the first, and NaN is
/// beyond everything. Two plain reductions: XLA vectorizes those, but not one that carries pairs.
pub(crate) fn extreme_with_position<'b>(x: Value<'b>, axis: usize, extreme: Extreme) -> (Value<'b>, Value<'b>) {
    if x.rank() == 0 {
        return (x, x.builder().scalar(0, DType::I64));
    }
    let values = extreme(x, &[axis]);
    let found = x.eq(values.unsqueeze(axis)) | x.is_nan();
    (values, first_position(found, axis))
}

/// The position (int64) of the first true along `axis`.
pub(crate) fn first_position(found: Value<'_>, axis: usize) -> Value<'_> {
    found.require_prefix(axis, "a position in merged dimensions");
    let dims = found.dims();
    let dtype = if dims[axis] <= i32::MAX.into() { DType::I32 } else { DType::I64 };
    let positions = found.builder().iota(dtype, &dims, axis);
    found.select(positions, dtype.highest()).reduce_min(&[axis]).convert(DType::I64)
}

/// `(Σ |x|ᵖ)^(1/p)` over `axes`, and its limits: the number of non-zeros for 0, the extremes for ±∞.
pub(crate) fn vector_norm<'b>(x: Value<'b>, p: f64, axes: &[usize]) -> Value<'b> {
    if p == 2.0 {
        return squared_magnitude(x).reduce_sum(axes).sqrt();
    }
    let magnitude = x.abs();
    if p == 0.0 {
        magnitude.ne(0.0).convert(magnitude.dtype()).reduce_sum(axes)
    } else if p == 1.0 {
        magnitude.reduce_sum(axes)
    } else if p == f64::INFINITY {
        magnitude.reduce_max(axes)
    } else if p == f64::NEG_INFINITY {
        magnitude.reduce_min(axes)
    } else {
        magnitude.pow(p).reduce_sum(axes).pow(1.0 / p)
    }
}
