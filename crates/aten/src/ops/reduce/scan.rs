//! Running sums, products and extremes.

use stablehlo::{DType, DTypes, Number, Value};

use crate::common::reductions::{log_add_exp, summands};
use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["cumsum"], |cx| running(cx, Number::Int(0), |a, x| a + x)),
    one(&["cumprod"], |cx| running(cx, Number::Int(1), |a, x| a * x)),
    many(&["cummax"], |cx| {
        let x = cx.tensor("self")?;
        running_extreme(cx, x.dtype().max_identity(), |a, x| a.larger(x))
    }),
    many(&["cummin"], |cx| {
        let x = cx.tensor("self")?;
        running_extreme(cx, x.dtype().min_identity(), |a, x| a.smaller(x))
    }),
    one(&["logcumsumexp", "_logcumsumexp"], |cx| {
        let x = cx.tensor("self")?;
        let scanned = |x| scan_along(cx, x, Number::Float(f64::NEG_INFINITY), |a, x| log_add_exp(a, x, 1.0));
        let wide = x.dtype().opmath();
        if wide == x.dtype() {
            return scanned(x);
        }
        // The barriers separate the scan from the conversions: libtpu's compiler for v6e crashes on a 16-bit window
        // with this function.
        Ok(scanned(x.convert(wide).barrier())?.barrier().convert(x.dtype()))
    })
    .takes(&["self"], DTypes::INEXACT),
]);

/// A scan along the argument `dim`. A 0-d value is returned unchanged.
fn scan_along<'b>(
    cx: &Cx<'b>,
    x: Value<'b>,
    identity: Number,
    combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
) -> Result<Value<'b>> {
    let axis = cx.axis_arg("dim", x.rank())?;
    Ok(if x.rank() == 0 { x } else { x.scan(axis, identity, combine) })
}

/// A scan in the type of [`summands`].
fn running<'b>(
    cx: &Cx<'b>,
    identity: Number,
    combine: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
) -> Result<Value<'b>> {
    let x = summands(cx)?;
    // In place, booleans have no kernel.
    cx.check_dtype(x.dtype(), DTypes::NUMBERS)?;
    Ok(scan_along(cx, x.convert(x.dtype().opmath()), identity, combine)?.convert(x.dtype()))
}

/// The running extreme and the position of its last occurrence so far. After a NaN it stays NaN.
fn running_extreme<'b>(
    cx: &Cx<'b>,
    identity: Number,
    extreme: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>,
) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let values = scan_along(cx, x, identity, extreme)?;
    if x.rank() == 0 {
        return Ok(vec![x, cx.b().scalar(0, DType::I64)]);
    }
    let axis = cx.axis_arg("dim", x.rank())?;
    let position = cx.b().iota(DType::of_counts(x.dim(axis)), &x.dims(), axis);
    // Marks the elements that equal the extreme so far; the running maximum of their positions is the result.
    let records = (x.eq(values) | x.is_nan()).select(position, 0);
    let positions = records.scan(axis, Number::Int(0), |a, x| a.max(x));
    Ok(vec![values, positions.convert(DType::I64)])
}
