//! Functions of one value.

use std::f64::consts::PI;

use stablehlo::{DType, DTypes, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::ops::elementwise::complex::{
    arc_cosine, arc_hyperbolic_cosine, arc_hyperbolic_sine, arc_hyperbolic_tangent, arc_sine, arc_tangent, cosine,
    exponential, exponential_minus_one, exponential_of_two, hyperbolic_cosine, hyperbolic_sine, hyperbolic_tangent,
    logarithm, logistic, magnitude, parts, reciprocal, reciprocal_square_root, sine, square_root, tangent,
};
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    // Numbers of any type.
    one(&["abs"], |cx| cx.tensor("self").map(magnitude)),
    one(&["neg"], |cx| match cx.tensor("self")? {
        x if x.dtype() == DType::Bool => Err(Error::runtime("neg: a bool tensor has no negation")),
        x => Ok(-x),
    }),
    one(&["sign"], |cx| Ok(sign(cx.tensor("self")?))).takes(&["self"], DTypes::REAL),
    one(&["sgn"], |cx| Ok(sign(cx.tensor("self")?))),
    one(&["angle"], angle),
    one(&["_conj_physical", "conj_physical"], |cx| Ok(cx.tensor("self")?.conjugate())),
    one(&["bitwise_not"], |cx| Ok(!cx.tensor("self")?)),
    one(&["logical_not"], |cx| Ok(!cx.tensor("self")?.convert(DType::Bool))),
    one(&["isnan"], |cx| Ok(cx.tensor("self")?.is_nan())),
    one(&["isinf"], |cx| Ok(cx.tensor("self")?.is_infinite())),
    one(&["isposinf"], |cx| cx.tensor("self").map(|x| x.is_infinite() & x.gt(0))),
    one(&["isneginf"], |cx| cx.tensor("self").map(|x| x.is_infinite() & x.lt(0))),
    one(&["signbit"], |cx| Ok(cx.tensor("self")?.sign_bit())),
    one(&["nan_to_num"], nan_to_num),
    // Rounding.
    one(&["floor"], |cx| rounded(cx, |x| x.floor())).takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["ceil"], |cx| rounded(cx, |x| x.ceil())).takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["trunc"], |cx| rounded(cx, |x| x.trunc())).takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["round"], |cx| rounded(cx, |x| x.round_even())).takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["round.decimals"], round_decimals).takes(&["self"], DTypes::FLOATS).inputs(&["decimals"]),
    one(&["frac"], |cx| cx.tensor("self").map(|x| x - x.trunc())),
    many(&["frexp.Tensor"], frexp),
    // Powers, exponentials and logarithms.
    one(&["reciprocal"], |cx| cx.float_unary(reciprocal)),
    one(&["sqrt"], |cx| cx.float_unary(square_root)),
    one(&["rsqrt"], |cx| cx.float_unary(reciprocal_square_root)),
    one(&["exp"], |cx| cx.float_unary(exponential)),
    one(&["exp2"], |cx| cx.float_unary(exponential_of_two)),
    one(&["expm1"], |cx| cx.float_unary(exponential_minus_one)),
    one(&["log"], |cx| cx.float_unary(logarithm)),
    one(&["log1p"], |cx| cx.float_unary(|x| x.log_1p())),
    one(&["sigmoid"], |cx| cx.float_unary(logistic)),
    one(&["logit"], |cx| {
        let limit = cx.scalar_or_none("eps", cx.float_dtype(cx.ty("self")?.dtype).opmath())?;
        cx.float_unary(|x| {
            let x = limit.map_or(x, |eps| {
                let high = -eps + 1.0;
                x.lt(eps).select(eps, x.gt(high).select(high, x))
            });
            (x / (-x + 1.0)).log()
        })
    })
    .takes(&["self"], DTypes::REAL),
    // Circular and hyperbolic functions.
    one(&["sin"], |cx| cx.float_unary(sine)),
    one(&["cos"], |cx| cx.float_unary(cosine)),
    one(&["tan"], |cx| cx.float_unary(tangent)),
    one(&["asin"], |cx| cx.float_unary(arc_sine)),
    one(&["acos"], |cx| cx.float_unary(arc_cosine)),
    one(&["atan"], |cx| cx.float_unary(arc_tangent)),
    one(&["sinh"], |cx| cx.float_unary(hyperbolic_sine)),
    one(&["cosh"], |cx| cx.float_unary(hyperbolic_cosine)),
    one(&["tanh"], |cx| cx.float_unary(hyperbolic_tangent)),
    one(&["asinh"], |cx| cx.float_unary(arc_hyperbolic_sine)),
    one(&["acosh"], |cx| cx.float_unary(arc_hyperbolic_cosine)),
    one(&["atanh"], |cx| cx.float_unary(arc_hyperbolic_tangent)),
    one(&["deg2rad"], |cx| cx.float_unary(|x| x * (PI / 180.0))),
    one(&["rad2deg"], |cx| cx.float_unary(|x| x * (180.0 / PI))),
    one(&["sinc"], |cx| cx.float_unary(|x| x.eq(0).select(x.splat_like(1), sine(x * PI) / (x * PI)))),
]);

/// -1, 0 or 1; 0 for NaN; the direction of a complex number, NaN if it is infinite.
pub(crate) fn sign<'b>(x: Value<'b>) -> Value<'b> {
    match x.dtype() {
        DType::Bool => x,
        t if t.is_complex() => {
            let length = (!x.is_infinite()).select(x.abs(), f64::NAN);
            x.eq(0).select(x, parts(x, |part| part / length))
        }
        t => x.gt(0).convert(t) - x.lt(0).convert(t),
    }
}

fn angle<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    if x.dtype().is_complex() {
        return Ok(x.imag().atan2(x.real()));
    }
    cx.float_unary(|x| x.is_nan().select(x, x.lt(0).select(x.splat_like(PI), 0)))
}

/// Applies a rounding function to floats. Integers are unchanged.
fn rounded<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    Ok(if x.dtype().is_float() { f(x) } else { x })
}

fn round_decimals<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let decimals = cx.scalar("decimals", DType::I64)?;
    let dtype = cx.ty("self")?.dtype;
    // A table, because the power of an input would be rounded.
    let powers: Vec<f64> =
        (0..).map(|i| 10f64.powi(i)).take_while(|&power| power <= dtype.highest().to_f64()).collect();
    let last = powers.len() as i64;
    let table = cx.b().constant(&[powers, vec![f64::INFINITY]].concat(), dtype, &[last + 1]);
    let place = decimals.max(-last).min(last).abs();
    rounded(cx, |x| {
        let scale = table.dynamic_slice(&[place], &[1]).reshape(&[]);
        let is_left = decimals.lt(0);
        let units = is_left.select(x / scale, x * scale).round_even();
        is_left.select(units * scale, units / scale)
    })
}

fn nan_to_num<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let dtype = x.dtype();
    if !dtype.is_float() && !dtype.is_complex() {
        return Ok(x);
    }
    let number = |name| if cx.is_none(name) { Ok(None) } else { cx.operand(name, dtype.real()).map(Some) };
    let nan = number("nan")?.unwrap_or(cx.b().scalar(0, dtype.real()));
    let highest = number("posinf")?.unwrap_or(cx.b().scalar(dtype.highest(), dtype.real()));
    let lowest = number("neginf")?.unwrap_or(cx.b().scalar(dtype.lowest(), dtype.real()));
    let replaced = |x: Value<'b>| {
        let x = x.eq(f64::INFINITY).select(highest, x.eq(f64::NEG_INFINITY).select(lowest, x));
        x.is_nan().select(nan, x)
    };
    Ok(if dtype.is_complex() { replaced(x.real()).complex(replaced(x.imag())) } else { replaced(x) })
}

/// Mantissa (of magnitude in `[0.5, 1)`) and exponent, computed from the bits, because XLA treats subnormal numbers
/// as zero.
fn frexp<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let dtype = x.dtype();
    let wide = x.convert(dtype.opmath());
    let (bits, fraction_bits, exponent_mask): (_, i64, i64) = match wide.dtype() {
        DType::F64 => (DType::I64, 52, 0x7ff),
        _ => (DType::I32, 23, 0xff),
    };
    // The biased exponent of numbers in [0.5, 1).
    let half = exponent_mask / 2 - 1;
    let pattern = wide.bitcast(bits);
    let biased = pattern.shift_right_logical(fraction_bits) & exponent_mask;
    let fraction_mask = (1_i64 << fraction_bits) - 1;
    let fraction = pattern & fraction_mask;
    // Shifts the leading bit of a subnormal to the position of the implicit bit of other numbers.
    let missing = fraction.count_leading_zeros() - (wide.dtype().size_bytes() as i64 * 8 - 1 - fraction_bits);
    let is_subnormal = biased.eq(0);
    let fraction = is_subnormal.select(fraction.shift_left(missing) & fraction_mask, fraction);
    let exponent = is_subnormal.select(-missing + 1, biased) - half;
    let sign = pattern & (i64::MIN >> (64 - wide.dtype().size_bytes() * 8));
    let mantissa = (sign | fraction | (half << fraction_bits)).bitcast(wide.dtype());
    // Compares bits, because a comparison with zero is true for subnormals.
    let special = (is_subnormal & missing.gt(fraction_bits)) | biased.eq(exponent_mask);
    Ok(vec![
        special.select(wide, mantissa).convert(dtype),
        special.select(exponent.splat_like(0), exponent).convert(DType::I32),
    ])
}
