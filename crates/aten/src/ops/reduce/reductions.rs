//! Reductions: sums, extremes and statistics.

use stablehlo::{DType, DTypes, Value};

use crate::common::pooling::valid_positions;
use crate::common::reductions::{Extreme, extreme_with_position, keep, log_sum_exp, mean, moments, reduced, summands};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["sum", "sum.dim_IntList"], |cx| accumulated(cx, |x, axes| x.reduce_sum(axes))),
    one(&["prod", "prod.dim_int"], |cx| accumulated(cx, |x, axes| x.reduce_prod(axes))),
    one(&["nansum"], |cx| accumulated(cx, |x, axes| x.is_nan().select(x.splat_like(0), x).reduce_sum(axes))),
    one(&["mean", "mean.dim"], |cx| {
        let dtype = cx.dtype_or_none("dtype").unwrap_or(cx.ty("self")?.dtype);
        if !dtype.is_float() && !dtype.is_complex() {
            return Err(Error::runtime("mean: the result must be floating point or complex"));
        }
        accumulated(cx, mean)
    }),
    one(&["count_nonzero", "count_nonzero.dim_IntList"], |cx| {
        reduced(cx, cx.tensor("self")?.convert(DType::Bool).convert(DType::I64), |x, axes| x.reduce_sum(axes))
    }),
    one(&["hash_tensor"], |cx| {
        let x = cx.tensor("self")?;
        let wide = if x.dtype().is_float() { x.convert(DType::F64) } else { x.convert(DType::I64) };
        reduced(cx, wide.bitcast(DType::U64), |x, axes| x.reduce_xor(axes))
    })
    .takes(&["self"], DTypes::REAL),
    // Variance
    one(&["var.correction"], |cx| spread(cx, |variance| variance).map(|[variance, _]| variance))
        .takes(&["self"], DTypes::INEXACT)
        .baked(&["correction"]),
    one(&["std.correction"], |cx| spread(cx, |v| v.sqrt()).map(|[deviation, _]| deviation))
        .takes(&["self"], DTypes::INEXACT)
        .baked(&["correction"]),
    many(&["var_mean.correction"], |cx| spread(cx, |variance| variance).map(Vec::from))
        .takes(&["self"], DTypes::INEXACT)
        .baked(&["correction"]),
    many(&["std_mean.correction"], |cx| spread(cx, |v| v.sqrt()).map(Vec::from))
        .takes(&["self"], DTypes::INEXACT)
        .baked(&["correction"]),
    // Extremes
    one(&["amax", "max"], |cx| reduced(cx, not_empty(cx)?, |x, axes| x.reduce_max(axes)))
        .takes(&["self"], DTypes::REAL),
    one(&["amin", "min"], |cx| reduced(cx, not_empty(cx)?, |x, axes| x.reduce_min(axes)))
        .takes(&["self"], DTypes::REAL),
    many(&["aminmax", "_aminmax", "_aminmax.dim"], |cx| {
        let x = cx.tensor("self")?;
        Ok(vec![reduced(cx, x, |x, axes| x.reduce_min(axes))?, reduced(cx, x, |x, axes| x.reduce_max(axes))?])
    }),
    many(&["max.dim"], |cx| extreme_along(cx, |x, axes| x.reduce_max(axes))),
    many(&["min.dim"], |cx| extreme_along(cx, |x, axes| x.reduce_min(axes))),
    one(&["argmax"], |cx| position_of_extreme(cx, |x, axes| x.reduce_max(axes))).takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["argmin"], |cx| position_of_extreme(cx, |x, axes| x.reduce_min(axes))).takes(&["self"], DTypes::REAL_NUMBERS),
    // Logic
    one(&["any", "any.dim", "any.dims"], |cx| logical(cx, |x, axes| x.reduce_any(axes))),
    one(&["all", "all.dim", "all.dims"], |cx| logical(cx, |x, axes| x.reduce_all(axes))),
    one(&["logsumexp"], |cx| {
        let x = cx.tensor("self")?;
        let dtype = cx.float_dtype(x.dtype());
        Ok(reduced(cx, x.convert(dtype.opmath()), log_sum_exp)?.convert(dtype))
    }),
]);

/// A reduction in the type of [`summands`].
fn accumulated<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, &[usize]) -> Value<'b>) -> Result<Value<'b>> {
    let x = summands(cx)?;
    let work = if x.dtype() == DType::Bool { DType::I64 } else { x.dtype().opmath() };
    Ok(reduced(cx, x.convert(work), f)?.convert(x.dtype()))
}

/// The number of elements of `x` that are reduced to one result over `axes`.
pub(crate) fn count(x: Value<'_>, axes: &[usize]) -> i64 {
    axes.iter().map(|&axis| x.dim(axis)).product()
}

/// `f` applied to the variance, and the mean.
fn spread<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>) -> Value<'b>) -> Result<[Value<'b>; 2]> {
    let x = cx.tensor("self")?;
    let dtype = x.dtype();
    let x = x.convert(dtype.opmath());
    let axes = cx.axes_arg("dim", x.rank())?;
    let correction = if cx.is_none("correction") { 1.0 } else { cx.number("correction")?.to_f64() };
    let (mean, squares) = moments(x, &axes);
    let freedom = match x.is_bounded_along(&axes) {
        true => (x.count(&axes, squares.dtype()) - correction).max(0.0),
        false => cx.b().scalar((count(x, &axes) as f64 - correction).max(0.0), squares.dtype()),
    };
    let variance = f(squares / freedom);
    let keep = cx.bool("keepdim")?;
    let shaped = |kept: Value<'b>| if keep { kept } else { drop_dims(kept, &axes) };
    Ok([shaped(variance).convert(dtype.real()), shaped(mean).convert(dtype)])
}

/// Removes dimensions of size 1.
fn drop_dims<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let dims: Vec<i64> = (0..x.rank()).filter(|axis| !axes.contains(axis)).map(|axis| x.dim(axis)).collect();
    x.reshape(&dims)
}

/// `self`, or an error if an empty tensor is reduced over all dimensions. PyTorch checks reductions over given
/// dimensions.
fn not_empty<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    if x.numel() == 0 && cx.ints("dim")?.is_empty() {
        return Err(Error::runtime(format!(
            "{}(): Expected reduction dim to be specified for input.numel() == 0. \
             Specify the reduction dim with the 'dim' argument.",
            cx.operator
        )));
    }
    Ok(x)
}

fn extreme_along<'b>(cx: &Cx<'b>, extreme: Extreme) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let axes = cx.axes_arg("dim", x.rank())?;
    let (values, positions) = extreme_with_position(x, cx.axis_arg("dim", x.rank())?, extreme);
    Ok(vec![keep(cx, values, &axes)?, keep(cx, positions, &axes)?])
}

fn position_of_extreme<'b>(cx: &Cx<'b>, extreme: Extreme) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let axes = cx.axes_arg("dim", x.rank())?;
    let position = match cx.int_or_none("dim") {
        Some(dim) => extreme_with_position(x, cx.axis(dim, x.rank())?, extreme).1,
        None if x.is_bounded() => position_among_all(x, extreme),
        None => extreme_with_position(x.flatten(), 0, extreme).1,
    };
    keep(cx, position, &axes)
}

/// The row-major position (int64) of the first extreme element among the valid ones.
fn position_among_all<'b>(x: Value<'b>, extreme: Extreme) -> Value<'b> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    axes.iter().for_each(|&axis| x.require_prefix(axis, "a position in merged dimensions"));
    let found = x.eq(extreme(x, &axes)) | x.is_nan();
    let position = valid_positions(x, x.rank());
    found.select(position, position.dtype().highest()).reduce_min(&axes).convert(DType::I64)
}

/// A logical reduction. The result is uint8 for uint8, from the time when PyTorch had no booleans.
fn logical<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, &[usize]) -> Value<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let dtype = if x.dtype() == DType::U8 { DType::U8 } else { DType::Bool };
    let truth = x.convert(DType::Bool);
    // Here an empty list of dimensions reduces nothing; in other reductions it means all dimensions.
    let result = match cx.ints_or_none("dim")? {
        Some(dims) if dims.is_empty() => truth,
        _ => reduced(cx, truth, f)?,
    };
    Ok(result.convert(dtype))
}
