//! Reductions that rows of several families use.

use stablehlo::{DType, Number, Value};

use crate::cx::Cx;
use crate::error::Result;

/// Applies `f` to the dimensions of the argument `dim` of `x` (all if absent or empty) and honours `keepdim`.
pub(crate) fn reduced<'b>(
    cx: &Cx<'b>,
    x: Value<'b>,
    f: impl FnOnce(Value<'b>, &[usize]) -> Value<'b>,
) -> Result<Value<'b>> {
    let axes = cx.axes_arg("dim", x.rank())?;
    keep(cx, f(x, &axes), &axes)
}

/// Keeps the reduced `axes` as dimensions of size 1 if the argument `keepdim` is set.
pub(crate) fn keep<'b>(cx: &Cx<'b>, reduced: Value<'b>, axes: &[usize]) -> Result<Value<'b>> {
    Ok(if cx.bool("keepdim")? { reduced.keep_dims(axes) } else { reduced })
}

/// The argument `self` in the type in which PyTorch adds or multiplies its elements: that of the argument `dtype`, else
/// that of the result, which `out` decides, else int64 for integers and booleans.
pub(crate) fn summands<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let own = if x.dtype().is_integer() || x.dtype() == DType::Bool { DType::I64 } else { x.dtype() };
    Ok(x.convert(cx.dtype_or_none("dtype").or(cx.known_dtype()).unwrap_or(own)))
}

/// The mean; NaN if there are no elements.
pub(crate) fn mean<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let sum = x.reduce_sum(axes);
    sum / x.count(axes, sum.dtype())
}

/// The mean over `axes` and the sum of squared distances from it, both with `axes` kept as dimensions of size 1. Uses
/// two passes, because the sum of squares minus the square of the sum would cancel.
pub(crate) fn moments<'b>(x: Value<'b>, axes: &[usize]) -> (Value<'b>, Value<'b>) {
    let mean = mean(x, axes).keep_dims(axes);
    (mean, squared_magnitude(x - mean).reduce_sum(axes).keep_dims(axes))
}

/// `|x|²`, real.
pub(crate) fn squared_magnitude(x: Value<'_>) -> Value<'_> {
    if x.dtype().is_complex() { x.real().square() + x.imag().square() } else { x.square() }
}

/// `log Σ exp x`, shifted by the largest element to avoid overflow.
pub(crate) fn log_sum_exp<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let largest = x.real().reduce_max(axes);
    let shift = largest.is_finite().select(largest, 0).convert(x.dtype());
    (x - shift.keep_dims(axes)).exp().reduce_sum(axes).log() + shift
}

/// `log(base^x + base^y) / log(base)` without overflow, where `rate` is the natural logarithm of the base.
pub(crate) fn log_add_exp<'b>(x: Value<'b>, y: Value<'b>, rate: f64) -> Value<'b> {
    let first = x.real().ge(y.real());
    let (large, small) = (first.select(x, y), first.select(y, x));
    // The difference of equal infinities is NaN.
    let difference = large.eq(small).select(large.splat_like(0), small - large);
    large + (difference * rate).exp().log_1p() / rate
}

pub(crate) type Extreme = for<'b> fn(Value<'b>, &[usize]) -> Value<'b>;

/// The extreme elements along the axis and their positions (int64). Equal elements give the first position; NaN is
/// more extreme than any number. Uses two plain reductions, because XLA vectorizes those but not a reduction of
/// pairs.
pub(crate) fn extreme_with_position<'b>(x: Value<'b>, axis: usize, extreme: Extreme) -> (Value<'b>, Value<'b>) {
    if x.rank() == 0 {
        return (x, x.builder().scalar(0, DType::I64));
    }
    let values = extreme(x, &[axis]);
    let found = x.eq(values.unsqueeze(axis)) | x.is_nan();
    (values, first_position(found, axis))
}

/// The position (int64) of the first true element along `axis`.
pub(crate) fn first_position(found: Value<'_>, axis: usize) -> Value<'_> {
    found.require_prefix(axis, "a position in merged dimensions");
    let dims = found.dims();
    let dtype = DType::of_counts(dims[axis]);
    let positions = found.builder().iota(dtype, &dims, axis);
    found.select(positions, dtype.highest()).reduce_min(&[axis]).convert(DType::I64)
}

/// The order of a norm.
#[derive(Clone, Copy)]
pub(crate) enum Order<'b> {
    /// The number of non-zeros.
    Zero,
    One,
    Two,
    /// The largest magnitude.
    Infinity,
    /// The smallest magnitude.
    NegativeInfinity,
    /// 0-d, float64.
    Other(Value<'b>),
}

impl<'b> Order<'b> {
    /// The order that a number argument gives; 2 if it is absent.
    pub(crate) fn of(cx: &Cx<'b>, name: &str) -> Result<Order<'b>> {
        if cx.is_none(name) {
            return Ok(Order::Two);
        }
        Ok(match cx.known_number(name).map(Number::to_f64) {
            Some(0.0) => Order::Zero,
            Some(1.0) => Order::One,
            Some(2.0) => Order::Two,
            Some(f64::INFINITY) => Order::Infinity,
            Some(f64::NEG_INFINITY) => Order::NegativeInfinity,
            _ => Order::Other(cx.scalar(name, DType::F64)?),
        })
    }

    /// Whether a program has the order as a constant. Others are inputs. PyTorch refuses some orders below 0.
    pub(crate) fn has_own_form(order: Number) -> bool {
        let order = order.to_f64();
        order <= 2.0 && order.fract() == 0.0 || order < 0.0 || order == f64::INFINITY
    }
}

/// `(Σ |x|ᵖ)^(1/p)` over `axes`, and its limits.
pub(crate) fn vector_norm<'b>(x: Value<'b>, order: Order<'b>, axes: &[usize]) -> Value<'b> {
    let magnitude = || x.abs();
    match order {
        Order::Two => squared_magnitude(x).reduce_sum(axes).sqrt(),
        Order::Zero => magnitude().ne(0.0).convert(x.dtype().real()).reduce_sum(axes),
        Order::One => magnitude().reduce_sum(axes),
        Order::Infinity => magnitude().reduce_max(axes),
        Order::NegativeInfinity => magnitude().reduce_min(axes),
        Order::Other(p) => {
            let (size, dtype) = (magnitude(), x.dtype().real());
            size.pow(p.convert(dtype)).reduce_sum(axes).pow(p.recip().convert(dtype))
        }
    }
}
