//! Functions that XLA computes otherwise than C for complex numbers. Real numbers keep XLA's form.

use std::f64::consts::{FRAC_PI_2, LN_2};

use stablehlo::{DType, Value};

/// Applies `f` to a real value, or to both parts of a complex one.
pub(crate) fn parts<'b>(x: Value<'b>, f: impl Fn(Value<'b>) -> Value<'b>) -> Value<'b> {
    if x.dtype().is_complex() { f(x.real()).complex(f(x.imag())) } else { f(x) }
}

/// |z|. As in C, infinite where a part is, also if the other part is NaN.
pub(crate) fn magnitude(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { (!z.is_infinite()).select(z.abs(), f64::INFINITY) } else { z.abs() }
}

/// log z = log |z| + i arg z.
pub(crate) fn logarithm(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.log();
    }
    let result = z.log();
    (!z.is_infinite()).select(result.real(), f64::INFINITY).complex(result.imag())
}

// Exponentials.

/// e^z. XLA multiplies e^a by a cosine, which is NaN if the imaginary part is not finite. As in C, the result is then
/// zero if a is -∞, and has an infinite real part if a is ∞.
pub(crate) fn exponential(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.exp();
    }
    let (a, result) = (z.real(), z.exp());
    let is_lost = a.eq(f64::INFINITY) & result.real().is_nan();
    let result = is_lost.select(a, result.real()).complex(result.imag());
    a.eq(f64::NEG_INFINITY).select(z.splat_like(0), result)
}

/// 2^z. XLA's power is NaN where the result is infinite.
pub(crate) fn exponential_of_two(z: Value<'_>) -> Value<'_> {
    match z.dtype().is_complex() {
        true => exponential(parts(z, |part| part * LN_2)),
        false => z.splat_like(2).pow(z),
    }
}

/// e^z - 1 = (e^a - 1) cos b - 2 sin²(b/2) + i e^a sin b, for z = a + bi.
pub(crate) fn exponential_minus_one(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.exp_m1();
    }
    let (a, b) = (z.real(), z.imag());
    let half = (b * 0.5).sin();
    (a.exp_m1() * b.cos() - half * half * 2.0).complex(a.exp() * b.sin())
}

/// 1 / (1 + e^-z), which is e^z / (1 + e^z). The exponential of the one that is taken is not large.
pub(crate) fn logistic(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.logistic();
    }
    let is_negative = z.real().lt(0);
    let small = exponential(is_negative.select(z, -z));
    is_negative.select(small, 1) / (small + 1)
}

/// 1 / z. As in NumPy and PyTorch, NaN if no part of z is finite. XLA's quotient is zero if one is infinite.
pub(crate) fn reciprocal(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.recip();
    }
    let is_defined = z.real().is_finite() | z.imag().is_finite();
    parts(z.recip(), |part| is_defined.select(part, f64::NAN))
}

// Circular functions. XLA's forms subtract exponentials that are nearly the same, so small parts of results are lost.
// For z = a + bi:
//
//   sin z  = sin a cosh b + i cos a sinh b      cos z  = cos a cosh b - i sin a sinh b
//   sinh z = sinh a cos b + i cosh a sin b      cosh z = cosh a cos b + i sinh a sin b

pub(crate) fn sine(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.sin();
    }
    let (a, b) = (z.real(), z.imag());
    scaled(a.sin(), real_cosh(b)).complex(scaled_by_cosine(a.cos(), b, real_sinh(b)))
}

pub(crate) fn cosine(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.cos();
    }
    let (a, b) = (z.real(), z.imag());
    scaled_by_cosine(a.cos(), b, real_cosh(b)).complex(-scaled(a.sin(), real_sinh(b)))
}

pub(crate) fn hyperbolic_sine(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { swapped(sine(swapped(z))) } else { real_sinh(z) }
}

pub(crate) fn hyperbolic_cosine(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { cosine(swapped(z)).conjugate() } else { real_cosh(z) }
}

fn real_sinh(x: Value<'_>) -> Value<'_> {
    let [growing, falling] = half_exponentials(x);
    let large = growing - falling;
    x.abs().lt(1).select(x.sinh(), x.lt(0).select(-large, large))
}

fn real_cosh(x: Value<'_>) -> Value<'_> {
    let [growing, falling] = half_exponentials(x);
    growing + falling
}

/// e^|x| / 2 and e^-|x| / 2. The exponent is halved, which is exact: XLA's forms round |x| - ln 2, and an error in the
/// exponent is a relative error of the result. No factor overflows before the result does.
fn half_exponentials(x: Value<'_>) -> [Value<'_>; 2] {
    let root = (x.abs() * 0.5).exp();
    [root * 0.5 * root, root.recip() * 0.5 / root]
}

/// As in C, real for real numbers, also where they are not finite. XLA's tangent loses its digits near a pole.
pub(crate) fn tangent(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.tan();
    }
    let (a, b) = (z.real(), z.imag());
    let of_xla = z.tan();
    let of_xla = of_xla.real().complex(zero_where_zero(b, of_xla.imag()));
    (a.is_finite() & b.is_finite()).select(finite_tangent(a, b), of_xla)
}

/// The tangent of a + bi, for finite numbers (Kahan, "Branch cuts for complex elementary functions", 1987): with t = tan a
/// and s = sinh b, (t + i (1 + t²) s cosh b) / (1 + (1 + t²) s²). Far from the real axis, t / (1 + t²) is multiplied by
/// 4 e^-2|b|.
fn finite_tangent<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    let far = if a.dtype() == DType::F64 { 20.0 } else { 10.0 };
    let (t, s) = (a.tan(), real_sinh(b.clamp(-far, far)));
    let (slope, square) = (t * t + 1.0, s * s);
    let below = slope * square + 1.0;
    let is_far = b.abs().gt(far);
    let real = is_far.select(t / slope * 4.0 * (b.abs() * -2.0).exp(), t / below);
    let imag = is_far.select(b.sign(), slope * s * (square + 1.0).sqrt() / below);
    real.complex(imag)
}

pub(crate) fn hyperbolic_tangent(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { swapped(tangent(swapped(z))) } else { z.tanh() }
}

/// `result`, but the zero `part` where it is one.
fn zero_where_zero<'b>(part: Value<'b>, result: Value<'b>) -> Value<'b> {
    part.eq(0).select(part, result)
}

/// b + ai of a + bi.
fn swapped(z: Value<'_>) -> Value<'_> {
    z.imag().complex(z.real())
}

/// The product of a circular and a hyperbolic function. Zero stays zero, as in C, where the other is not finite.
fn scaled<'b>(circular: Value<'b>, hyperbolic: Value<'b>) -> Value<'b> {
    let product = circular * hyperbolic;
    let zero = circular.eq(0).select(circular, hyperbolic);
    (product.is_nan() & zero.eq(0)).select(zero, product)
}

/// The product of a cosine and a hyperbolic function of b. As in C, it is infinite if b is, also where the cosine is NaN.
fn scaled_by_cosine<'b>(cosine: Value<'b>, b: Value<'b>, hyperbolic: Value<'b>) -> Value<'b> {
    (cosine.is_nan() & b.is_infinite()).select(hyperbolic, scaled(cosine, hyperbolic))
}

// Functions with branch cuts. As in C, the sign of a zero says on which side of the cut a number is: the root of
// -1 - 0i is -i. XLA takes one side for both. The signs of the parts of these results follow from those of the number.

/// As in C, infinite where a part is, also if the other part is NaN.
pub(crate) fn square_root(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.sqrt();
    }
    let (a, b) = (z.real(), z.imag());
    let result = with_imaginary_sign(z.sqrt(), b);
    let real = (!(b.is_infinite() | a.eq(f64::INFINITY))).select(result.real(), f64::INFINITY);
    let imaginary = (!(b.is_nan() & a.eq(f64::NEG_INFINITY))).select(result.imag(), f64::INFINITY);
    real.complex(b.is_infinite().select(b, imaginary))
}

/// XLA's form computes a logarithm, a sine and a cosine, and loses small parts.
pub(crate) fn reciprocal_square_root(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { reciprocal(square_root(z)) } else { z.rsqrt() }
}

pub(crate) fn arc_cosine(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.acos();
    }
    let result = with_imaginary_sign(z.acos(), -z.imag());
    z.real().ne(0).select(result.real(), FRAC_PI_2).complex(result.imag())
}

pub(crate) fn arc_hyperbolic_cosine(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.acosh();
    }
    let result = z.acosh();
    let imaginary = z.real().ne(0).select(result.imag(), FRAC_PI_2);
    with_imaginary_sign(result.real().complex(imaginary), z.imag())
}

pub(crate) fn arc_sine(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.asin();
    }
    let result = odd(z, z.asin());
    zero_where_zero(z.real(), result.real()).complex(result.imag())
}

/// XLA's real part is a number where z is NaN.
pub(crate) fn arc_tangent(z: Value<'_>) -> Value<'_> {
    if !z.dtype().is_complex() {
        return z.atan();
    }
    let (a, b, result) = (z.real(), z.imag(), odd(z, z.atan()));
    let is_number = !a.is_nan() & (!b.is_nan() | a.is_infinite());
    is_number.select(result.real(), f64::NAN).complex(zero_where_zero(b, result.imag()))
}

pub(crate) fn arc_hyperbolic_sine(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { swapped(arc_sine(swapped(z))) } else { z.asinh() }
}

pub(crate) fn arc_hyperbolic_tangent(z: Value<'_>) -> Value<'_> {
    if z.dtype().is_complex() { swapped(arc_tangent(swapped(z))) } else { z.atanh() }
}

/// `result` with an imaginary part of this sign.
fn with_imaginary_sign<'b>(result: Value<'b>, sign: Value<'b>) -> Value<'b> {
    result.real().complex(result.imag().copy_sign(sign))
}

/// The result of an odd function of `z`, whose parts have the signs of those of `z`.
fn odd<'b>(z: Value<'b>, result: Value<'b>) -> Value<'b> {
    with_imaginary_sign(result.real().copy_sign(z.real()).complex(result.imag()), z.imag())
}
