//! Arithmetic on corresponding elements of two values.

use stablehlo::{DType, DTypes, Number, Value};

use crate::common::clamp::clamp_to;
use crate::common::loops::of_elements;
use crate::common::reductions::log_add_exp;
use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::number_check::Fit;
use crate::ops::elementwise::complex::{reciprocal_square_root, square_root};
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["add.Tensor", "add.Scalar"], |cx| scaled(cx, ["self", "other"], |x, y| x + y)),
    one(&["sub.Tensor", "sub.Scalar"], |cx| difference(cx, ["self", "other"])),
    one(&["rsub.Tensor", "rsub.Scalar"], |cx| difference(cx, ["other", "self"])),
    one(&["mul.Tensor", "mul.Scalar"], |cx| cx.pointwise(["self", "other"], |[x, y]| x * y)),
    one(&["div.Tensor", "div.Scalar"], |cx| cx.float_pointwise(["self", "other"], |[x, y]| x / y)),
    one(&["div.Tensor_mode", "div.Scalar_mode"], |cx| match cx.str_or_none("rounding_mode").as_deref() {
        Some(mode) => {
            cx.check_dtype(cx.promoted(&["self", "other"])?, DTypes::REAL_NUMBERS)?;
            match mode {
                "floor" => divided(cx, floor_divide),
                _ => truncated_quotient(cx),
            }
        }
        None => cx.float_pointwise(["self", "other"], |[x, y]| x / y),
    }),
    one(&["floor_divide", "floor_divide.Scalar"], |cx| divided(cx, floor_divide)),
    one(&["remainder.Tensor", "remainder.Scalar", "remainder.Scalar_Tensor"], |cx| remainder_of(cx, remainder)),
    one(&["fmod.Tensor", "fmod.Scalar"], |cx| remainder_of(cx, |x, y| x % y)),
    one(&["addcmul"], |cx| {
        let value = factor(cx, "value", &["self", "tensor1", "tensor2"])?;
        cx.pointwise(["self", "tensor1", "tensor2"], |[x, y, z]| x + times(value, y) * z)
    })
    .takes(&["self", "tensor1", "tensor2"], DTypes::NUMBERS),
    one(&["addcdiv"], |cx| {
        let value = factor(cx, "value", &["self", "tensor1", "tensor2"])?;
        cx.pointwise(["self", "tensor1", "tensor2"], |[x, y, z]| x + times(value, y) / z)
    }),
    one(&["lerp.Scalar"], |cx| {
        cx.check_number("weight", cx.promoted(&["self"])?.opmath(), Fit::Converts)?;
        interpolate(cx)
    })
    .takes(&["self"], DTypes::INEXACT),
    one(&["lerp.Tensor"], interpolate).takes(&["self"], DTypes::INEXACT),
    // Powers.
    one(&["pow.Tensor_Scalar"], power_of_number).baked_if(&["exponent"], has_own_form),
    one(&["pow.Tensor_Tensor", "pow.Scalar"], |cx| cx.pointwise(["self", "exponent"], |[x, y]| power(x, y))),
    one(&["ldexp.Tensor"], ldexp),
    one(&["hypot"], |cx| cx.pointwise(["self", "other"], |[x, y]| hypot(x, y)))
        .takes(&["self", "other"], DTypes::FLOATS),
    // Selection.
    one(&["where.self"], |cx| {
        let (x, y) = cx.pair("self", "other")?;
        Ok(cx.tensor("condition")?.convert(DType::Bool).select(x, y))
    })
    .shapes_like(&[("where.self", "")]),
    one(&["maximum"], |cx| cx.pair("self", "other").map(|(x, y)| x.max(y))),
    one(&["minimum"], |cx| cx.pair("self", "other").map(|(x, y)| x.min(y))),
    one(&["fmax"], |cx| cx.pair("self", "other").map(|(x, y)| prefer_numbers(x, y, x.max(y)))),
    one(&["fmin"], |cx| cx.pair("self", "other").map(|(x, y)| prefer_numbers(x, y, x.min(y)))),
    one(&["clamp.Tensor"], |cx| {
        // One bound makes it a maximum or a minimum, which exist for booleans.
        if !cx.is_none("min") && !cx.is_none("max") {
            cx.check_dtype(cx.promoted(&["self", "min", "max"])?, DTypes::REAL_NUMBERS)?;
        }
        clamp(cx)
    }),
    one(&["clamp", "clamp_min", "clamp_max"], clamp).takes(&["self", "min", "max"], DTypes::REAL_NUMBERS),
    one(&["clamp_min.Tensor", "clamp_max.Tensor"], clamp),
    one(&["heaviside"], |cx| {
        cx.pair("self", "values").map(|(x, at_zero)| x.eq(0).select(at_zero, x.gt(0).convert(x.dtype())))
    }),
    // Functions of two floats.
    one(&["atan2"], |cx| cx.float_pointwise(["self", "other"], |[x, y]| x.atan2(y)))
        .takes(&["self", "other"], DTypes::REAL),
    one(&["copysign.Tensor", "copysign.Scalar"], |cx| cx.float_pointwise(["self", "other"], |[x, y]| x.copy_sign(y))),
    one(&["nextafter"], |cx| cx.pair("self", "other").map(|(x, y)| x.next_after(y))),
    one(&["logaddexp"], |cx| cx.float_pointwise(["self", "other"], |[x, y]| log_add_exp(x, y, 1.0)))
        .takes(&["self", "other"], DTypes::INEXACT),
    one(&["logaddexp2"], |cx| {
        cx.float_pointwise(["self", "other"], |[x, y]| log_add_exp(x, y, std::f64::consts::LN_2))
    })
    .takes(&["self", "other"], DTypes::FLOATS),
    one(&["xlogy.Tensor", "xlogy.Scalar_Self", "xlogy.Scalar_Other"], |cx| {
        cx.float_pointwise(["self", "other"], |[x, y]| vanishing_product(x, y, y.log()))
    })
    .takes(&["self", "other"], DTypes::REAL),
    one(&["special_xlog1py", "special_xlog1py.self_scalar", "special_xlog1py.other_scalar"], |cx| {
        cx.float_pointwise(["self", "other"], |[x, y]| vanishing_product(x, y, y.log_1p()))
    })
    .takes(&["self", "other"], DTypes::REAL),
    one(&["complex"], |cx| match (cx.tensor("real")?, cx.tensor("imag")?) {
        (re, im) if re.dtype() != im.dtype() => Err(Error::runtime("complex: the parts must be of one dtype")),
        (re, im) => {
            let (re, im) = re.broadcast_with(im);
            Ok(re.complex(im))
        }
    }),
    one(&["polar"], |cx| {
        if !DTypes::FLOATS.contains(cx.ty("abs")?.dtype) || cx.ty("abs")?.dtype != cx.ty("angle")?.dtype {
            return Err(Error::runtime("polar: the parts must be floats of one dtype"));
        }
        cx.pair("abs", "angle").map(|(radius, angle)| (radius * angle.cos()).complex(radius * angle.sin()))
    }),
    // Functions of two integers.
    one(&["gcd"], |cx| cx.pair("self", "other").map(|(x, y)| of_elements([x, y], |[x, y]| gcd(x, y))))
        .takes(&["self", "other"], DTypes::INTEGERS),
    one(&["lcm"], |cx| {
        let (x, y) = cx.pair("self", "other")?;
        let divisor = of_elements([x, y], |[x, y]| gcd(x, y));
        // PyTorch multiplies integers of less than 32 bits as C does: as an int, which is then cut to the type.
        let dtype = if x.dtype().size_bytes() < 4 { DType::I32 } else { x.dtype() };
        // Where the divisor is zero, both are. It is negative where its absolute value has no place in the type.
        let divisor = divisor.eq(0).select(divisor + 1, divisor);
        Ok((x.convert(dtype) / divisor.convert(dtype) * y.convert(dtype)).abs().convert(x.dtype()))
    })
    .takes(&["self", "other"], DTypes::INTEGERS),
]);

/// A factor in the type of the computation. `None` if it is known to be 1.
fn factor<'b>(cx: &Cx<'b>, name: &str, operands: &[&str]) -> Result<Option<Value<'b>>> {
    if cx.is_none(name) || cx.known_number(name).is_some_and(|n| n == Number::Int(1) || n == Number::Float(1.0)) {
        return Ok(None);
    }
    cx.scalar(name, cx.promoted(operands)?.opmath()).map(Some)
}

fn times<'b>(factor: Option<Value<'b>>, x: Value<'b>) -> Value<'b> {
    factor.map_or(x, |factor| x * factor.convert(x.dtype()))
}

/// Applies `f` to the first operand and `alpha` times the second, in the common type.
fn scaled<'b>(cx: &Cx<'b>, names: [&str; 2], f: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
    let dtype = cx.promoted(&names)?.opmath();
    let unscaled = cx.is_none("alpha") || cx.known_number("alpha").is_some_and(|n| n.to_f64() == 1.0);
    cx.check_number("alpha", cx.promoted(&names)?, Fit::Converts)?;
    let alpha = if unscaled { None } else { Some(cx.scalar("alpha", dtype)?) };
    cx.pointwise(names, |[x, y]| f(x, times(alpha, y)))
}

/// The first operand minus `alpha` times the second. Refuses booleans.
fn difference<'b>(cx: &Cx<'b>, names: [&str; 2]) -> Result<Value<'b>> {
    cx.check_difference(names)?;
    scaled(cx, names, |x, y| x - y)
}

/// A quotient of elements. Integers must not be divided by zero.
fn divided<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
    check_divisor(cx)?;
    cx.pointwise(["self", "other"], |[x, y]| f(x, y))
}

/// A remainder of elements. As in PyTorch, a number or a 0-d tensor is rounded to a 16-bit type first, which it is not in
/// other functions.
fn remainder_of<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>) -> Value<'b>) -> Result<Value<'b>> {
    check_divisor(cx)?;
    let (x, y) = cx.pair("self", "other")?;
    let dtype = x.dtype();
    Ok(f(x.convert(dtype.opmath()), y.convert(dtype.opmath())).convert(dtype))
}

/// A quotient rounded towards zero. As in PyTorch, that of two 16-bit elements is rounded to their type before.
fn truncated_quotient<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let dtype = cx.promoted(&["self", "other"])?;
    let are_elements = !cx.ty("self")?.dims.is_empty() && !cx.ty("other")?.dims.is_empty();
    divided(cx, |x, y| {
        let quotient = x / y;
        let rounded = if are_elements { quotient.convert(dtype).convert(quotient.dtype()) } else { quotient };
        if dtype.is_float() { rounded.trunc() } else { rounded }
    })
}

/// Adds a check that no integer is divided by zero.
fn check_divisor(cx: &Cx<'_>) -> Result<()> {
    let dtype = cx.promoted(&["self", "other"])?;
    if dtype.is_integer() && !cx.ty("self")?.dims.contains(&0) {
        match cx.arg("other") {
            Arg::Scalar(_) => cx.check_number("other", dtype, Fit::Divisor)?,
            _ => cx.check_none(cx.operand("other", dtype)?.eq(0), Error::zero_division()),
        }
    }
    Ok(())
}

/// Whether the remainders of truncating and flooring division differ.
fn signs_differ<'b>(remainder: Value<'b>, divisor: Value<'b>) -> Value<'b> {
    remainder.ne(0) & remainder.lt(0).ne(divisor.lt(0))
}

/// Python's `//`.
pub(crate) fn floor_divide<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let dtype = x.dtype();
    if dtype.is_unsigned() || dtype == DType::Bool {
        return x / y;
    }
    let rest = x % y;
    if !dtype.is_float() {
        return x / y - signs_differ(rest, y).convert(dtype);
    }
    // The floor of `x / y` would be wrong where the quotient rounds up to an integer.
    let exact = (x - rest) / y;
    let lower = exact - signs_differ(rest, y).convert(dtype);
    let floor = lower.floor();
    let nearest = (lower - floor).gt(0.5).select(floor + 1, floor);
    let quotient = x / y;
    let signed_zero = quotient.splat_like(0).copy_sign(quotient);
    y.eq(0).select(quotient, lower.eq(0).select(signed_zero, nearest))
}

/// Python's `%`.
pub(crate) fn remainder<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let rest = x % y;
    if x.dtype().is_unsigned() {
        return rest;
    }
    signs_differ(rest, y).select(rest + y, rest)
}

fn interpolate<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    cx.pointwise(["self", "end", "weight"], |[x, y, w]| lerp(x, y, w))
}

/// Linear interpolation from `x` to `y`, exact at both ends.
fn lerp<'b>(x: Value<'b>, y: Value<'b>, weight: Value<'b>) -> Value<'b> {
    let near_start = weight.abs().lt(0.5);
    near_start.select(x + weight * (y - x), y - (y - x) * (-weight + 1.0))
}

/// Whether powers with this exponent have a form of their own. PyTorch refuses negative exponents for integers.
fn has_own_form(exponent: Number) -> bool {
    match exponent {
        Number::Int(exponent) => exponent < 5,
        Number::Float(exponent) => [0.0, 1.0, 2.0, 3.0, 4.0, 0.5, -0.5, -1.0, -2.0].contains(&exponent),
        Number::Bool(_) | Number::Unsigned(_) => true,
        Number::Complex(..) => false,
    }
}

/// A power with a number as exponent. Common exponents have faster forms.
fn power_of_number<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let exponent = match cx.known_number("exponent") {
        Some(Number::Complex(..)) => Some(f64::NAN),
        number => number.map(Number::to_f64),
    };
    let dtype = cx.promoted(&["self", "exponent"])?;
    // PyTorch's kernels for float32 and float64 convert the exponent to double.
    if cx.ty("self")?.dtype == dtype && (dtype.is_integer() || dtype.opmath() != dtype) {
        cx.check_number("exponent", dtype, Fit::Converts)?;
    }
    cx.pointwise(["self", "exponent"], |[x, y]| {
        let rooted = x.dtype().is_float() || x.dtype().is_complex();
        match exponent {
            Some(0.0) => x.splat_like(1),
            Some(1.0) => x,
            Some(2.0) => x * x,
            Some(3.0) => x * x * x,
            Some(4.0) => x.square().square(),
            Some(0.5) if rooted => square_root(x),
            Some(-0.5) if rooted => reciprocal_square_root(x),
            Some(-1.0) if rooted => x.recip(),
            Some(-2.0) if rooted => (x * x).recip(),
            Some(small) if x.dtype().is_integer() && (0.0..64.0).contains(&small) => x.pow(y),
            _ => power(x, y),
        }
    })
}

/// `x` to the power of `y`. For integers, a negative power of anything but 1 and -1 is 0; the backends differ in this
/// case.
fn power<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    if x.dtype().is_complex() {
        let (x, y) = x.broadcast_with(y);
        return complex_power(x, y);
    }
    if !x.dtype().is_integer() {
        return x.pow(y);
    }
    if x.dtype().is_unsigned() {
        return of_elements([x, y], |[x, y]| natural_power(x, y));
    }
    let sign = (y & 1).ne(0).select(x, x * x);
    let is_unit = x.eq(1) | x.eq(-1);
    y.lt(0).select(is_unit.select(sign, x.splat_like(0)), of_elements([x, y.max(0)], |[x, y]| natural_power(x, y)))
}

/// `exp(y log x)`. XLA's power is closer to it, as a product of powers of the absolute value and of the angle's factor. It is
/// not used where one of them leaves the range of the type, which the product may not do.
fn complex_power<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (logarithm, angle) = (x.abs().log(), x.imag().atan2(x.real()));
    let (re, im) = (y.real(), y.imag());
    let (of_size, of_angle) = (re * logarithm, -im * angle);
    let magnitude = (of_size + of_angle).exp();
    let turned = im * logarithm + re * angle;
    let product = |part: Value<'b>| magnitude.eq(0).select(magnitude, magnitude * part);
    let by_exponential = product(turned.cos()).complex(product(turned.sin()));
    let far = 0.9 * re.dtype().highest().to_f64().ln();
    let is_far = of_size.abs().gt(far) | of_angle.abs().gt(far);
    let is_finite = |z: Value<'b>| z.real().is_finite() & z.imag().is_finite();
    // The logarithm of zero is infinite.
    let (is_zero, zero) = (x.eq(0), x.splat_like(0));
    let power = (is_far & is_finite(x) & is_finite(y) & !is_zero).select(by_exponential, x.pow(y));
    (is_zero & re.gt(0)).select(zero, power)
}

/// `x` to the power of `y`, modulo two to the power of the type's width. XLA's integer power reads only six bits of
/// the exponent.
fn natural_power<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (x, y) = x.broadcast_with(y);
    let digit = |y: Value<'b>| y & 63;
    let axes: Vec<usize> = (0..x.rank()).collect();
    let unfinished = |state: &[Value<'b>]| state[2].ne(0).reduce_any(&axes);
    let step = |state: &[Value<'b>]| {
        let (result, x, y) = (state[0], state[1].pow(state[1].splat_like(32)).square(), state[2]);
        vec![result * x.pow(digit(y)), x, y.shift_right_logical(y.splat_like(6))]
    };
    let rest = y.shift_right_logical(y.splat_like(6));
    x.builder().while_loop(&[x.pow(digit(y)), x, rest], unfinished, step)[0]
}

/// `self · 2^other`. Applies the power in two halves, because `2^other` alone may overflow.
fn ldexp<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    cx.float_pointwise(["self", "other"], |[x, exponent]| {
        let two = exponent.splat_like(2);
        if x.dtype().is_complex() {
            return x * two.pow(exponent);
        }
        // Beyond these bounds, the halves of the power are 0 or infinite for every type. An infinity has no halves.
        let exponent = exponent.clamp(-8192, 8192);
        let half = (exponent * 0.5).floor();
        x * two.pow(half) * two.pow(exponent - half)
    })
}

/// `sqrt(x² + y²)` without overflow of the squares.
fn hypot<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (x, y) = (x.abs(), y.abs());
    let (large, small) = (x.max(y), x.min(y));
    let ratio = small / large;
    let length = large * (ratio * ratio + 1.0).sqrt();
    let trivial = large.eq(0) | (x.is_infinite() | y.is_infinite());
    let infinite = x.is_infinite().select(x, y);
    trivial.select(large.eq(0).select(large, infinite), length)
}

/// `chosen`, or the other operand where one is NaN.
fn prefer_numbers<'b>(x: Value<'b>, y: Value<'b>, chosen: Value<'b>) -> Value<'b> {
    x.is_nan().select(y, y.is_nan().select(x, chosen))
}

fn clamp<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let dtype = cx.promoted(&["self", "min", "max"])?;
    clamp_to(cx, cx.operand("self", dtype)?, ["min", "max"])
}

/// `x · f(y)`: zero where `x` is zero, unless `y` is NaN.
fn vanishing_product<'b>(x: Value<'b>, y: Value<'b>, f_of_y: Value<'b>) -> Value<'b> {
    y.is_nan().select(y, x.eq(0).select(x.splat_like(0), x * f_of_y))
}

/// The greatest common divisor, by Euclid's algorithm on all elements at once.
fn gcd<'b>(x: Value<'b>, y: Value<'b>) -> Value<'b> {
    let (x, y) = x.abs().broadcast_with(y.abs());
    let axes: Vec<usize> = (0..x.rank()).collect();
    let unfinished = |state: &[Value<'b>]| state[1].ne(0).reduce_any(&axes);
    let step = |state: &[Value<'b>]| {
        let (x, y) = (state[0], state[1]);
        let finished = y.eq(0);
        let divisor = finished.select(y.splat_like(1), y);
        vec![finished.select(x, y), finished.select(y, x % divisor)]
    };
    x.builder().while_loop(&[x, y], unfinished, step)[0]
}
