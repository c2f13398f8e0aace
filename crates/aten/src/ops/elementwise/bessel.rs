//! Bessel and Airy functions. Chebyshev series approximate them near zero, and approximate the factors of their
//! asymptotic forms far from zero.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_PI, FRAC_PI_4, PI};

use stablehlo::{Comparison, DTypes, Value};

use crate::common::chebyshev::*;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["i0", "special_modified_bessel_i0"], |cx| cx.float_unary(|x| unscaled(x.abs(), i0e(x))))
        .takes(&["self"], DTypes::REAL),
    one(&["special_i0e"], |cx| cx.float_unary(i0e)).takes(&["self"], DTypes::REAL),
    one(&["special_i1", "special_modified_bessel_i1"], |cx| cx.float_unary(|x| unscaled(x.abs(), i1e(x))))
        .takes(&["self"], DTypes::REAL),
    one(&["special_i1e"], |cx| cx.float_unary(i1e)).takes(&["self"], DTypes::REAL),
    one(&["special_modified_bessel_k0"], |cx| cx.float_unary(|x| k0_parts(x).unscaled()))
        .takes(&["self"], DTypes::REAL),
    one(&["special_scaled_modified_bessel_k0"], |cx| cx.float_pointwise(["x"], |[x]| k0_parts(x).scaled()))
        .takes(&["x"], DTypes::REAL),
    one(&["special_modified_bessel_k1"], |cx| cx.float_unary(|x| k1_parts(x).unscaled()))
        .takes(&["self"], DTypes::REAL),
    one(&["special_scaled_modified_bessel_k1"], |cx| cx.float_pointwise(["x"], |[x]| k1_parts(x).scaled()))
        .takes(&["x"], DTypes::REAL),
    one(&["special_bessel_j0"], |cx| cx.float_unary(j0)).takes(&["self"], DTypes::REAL),
    one(&["special_bessel_j1"], |cx| cx.float_unary(j1)).takes(&["self"], DTypes::REAL),
    one(&["special_bessel_y0"], |cx| cx.float_unary(y0)).takes(&["self"], DTypes::REAL),
    one(&["special_bessel_y1"], |cx| cx.float_unary(y1)).takes(&["self"], DTypes::REAL),
    one(&["special_spherical_bessel_j0"], |cx| {
        cx.float_pointwise(["x"], |[x]| {
            let square = x * x;
            let near = -(-(-square / 42.0 + 1.0) * square / 20.0 + 1.0) * square / 6.0 + 1.0;
            let far = x.is_infinite().select(x.splat_like(0), x.sin() / x);
            x.abs().lt(0.5).select(near, far)
        })
    })
    .takes(&["x"], DTypes::REAL),
    one(&["special_airy_ai"], |cx| cx.float_pointwise(["x"], |[x]| airy(x))).takes(&["x"], DTypes::REAL),
]);

// ---- modified functions ----------------------------------------------------------------------------

/// `exp(x)` times a scaled function. The product may be finite where `exp(x)` overflows.
fn unscaled<'b>(x: Value<'b>, scaled: Value<'b>) -> Value<'b> {
    let root = (x * 0.5).exp();
    scaled * root * root
}

fn i0e<'b>(x: Value<'b>) -> Value<'b> {
    let x = x.abs();
    let near = chebyshev(I0_NEAR, x / 4.0 - 1.0);
    let far = chebyshev(I0_FAR, x.recip() * 16.0 - 1.0) * x.rsqrt();
    x.le(8.0).select(near, far)
}

fn i1e<'b>(x: Value<'b>) -> Value<'b> {
    let magnitude = x.abs();
    let near = chebyshev(I1_NEAR, magnitude / 4.0 - 1.0) * x;
    let far = (chebyshev(I1_FAR, magnitude.recip() * 16.0 - 1.0) * magnitude.rsqrt()).copy_sign(x);
    magnitude.le(8.0).select(near, far)
}

/// A function of the second kind: its value near zero, and its value times `exp(x)` far from zero.
struct SecondKind<'b> {
    x: Value<'b>,
    near: Value<'b>,
    far: Value<'b>,
}

impl<'b> SecondKind<'b> {
    fn joined(&self, near: Value<'b>, far: Value<'b>) -> Value<'b> {
        let positive = self.x.le(2.0).select(near, far);
        self.x.eq(0).select(self.x.splat_like(f64::INFINITY), positive)
    }

    fn unscaled(&self) -> Value<'b> {
        self.joined(self.near, self.far * (-self.x).exp())
    }

    fn scaled(&self) -> Value<'b> {
        self.joined(self.near * self.x.exp(), self.far)
    }
}

fn k0_parts<'b>(x: Value<'b>) -> SecondKind<'b> {
    let near = chebyshev(K0_NEAR, x * x * 0.5 - 1.0) - (x * 0.5).log() * unscaled(x, i0e(x));
    SecondKind { x, near, far: chebyshev(K0_FAR, x.recip() * 4.0 - 1.0) * x.rsqrt() }
}

fn k1_parts<'b>(x: Value<'b>) -> SecondKind<'b> {
    let near = chebyshev(K1_NEAR, x * x * 0.5 - 1.0) / x + (x * 0.5).log() * unscaled(x, i1e(x));
    SecondKind { x, near, far: chebyshev(K1_FAR, x.recip() * 4.0 - 1.0) * x.rsqrt() }
}

// ---- oscillating functions -------------------------------------------------------------------------

/// The first two positive zeros. The series near zero leave out these factors, so that the relative error at the
/// zeros is small.
const ZEROS_OF_J0: [f64; 2] = [2.404825557695773, 5.520078110286311];
const ZEROS_OF_J1: [f64; 2] = [3.8317059702075125, 7.015586669815619];

fn zero_factors<'b>(x: Value<'b>, zeros: [f64; 2]) -> Value<'b> {
    (x - zeros[0]) * (x + zeros[0]) * (x - zeros[1]) * (x + zeros[1])
}

/// `far` above 8, where the series near zero ends; `near` below.
fn from_eight<'b>(x: Value<'b>, near: Value<'b>, far: Value<'b>) -> Value<'b> {
    x.compare(Comparison::Le, 8.0).select(near, far)
}

/// `sqrt(2/(π x)) · (c · cos - 8/x · s · sin)`. `series` gives c and s; `phase` is the cosine and sine of the phase.
fn wave<'b>(x: Value<'b>, series: [&[f64]; 2], phase: (Value<'b>, Value<'b>)) -> Value<'b> {
    let nearness = x.recip() * 8.0;
    let t = nearness * nearness * 2.0 - 1.0;
    let (cosine, sine) = phase;
    let sum = chebyshev(series[0], t) * cosine - nearness * chebyshev(series[1], t) * sine;
    sum * (x.recip() * FRAC_2_PI).sqrt()
}

/// Cosine and sine of `x - π/4`, computed without rounding the difference.
fn phase0<'b>(x: Value<'b>) -> (Value<'b>, Value<'b>) {
    let (sine, cosine) = (x.sin(), x.cos());
    ((cosine + sine) * FRAC_1_SQRT_2, (sine - cosine) * FRAC_1_SQRT_2)
}

/// Cosine and sine of `x - 3π/4`.
fn phase1<'b>(x: Value<'b>) -> (Value<'b>, Value<'b>) {
    let (cosine, sine) = phase0(x);
    (sine, -cosine)
}

/// Adds a quarter period to a phase. This turns functions of the first kind into those of the second kind.
fn quarter_period_later<'b>((cosine, sine): (Value<'b>, Value<'b>)) -> (Value<'b>, Value<'b>) {
    (sine, -cosine)
}

fn j0<'b>(x: Value<'b>) -> Value<'b> {
    let x = x.abs();
    let near = chebyshev(J0_NEAR, x * x / 32.0 - 1.0) * zero_factors(x, ZEROS_OF_J0);
    from_eight(x, near, wave(x, [PHASE0_COSINE, PHASE0_SINE], phase0(x)))
}

fn j1<'b>(x: Value<'b>) -> Value<'b> {
    let magnitude = x.abs();
    let near = chebyshev(J1_NEAR, magnitude * magnitude / 32.0 - 1.0) * x * zero_factors(magnitude, ZEROS_OF_J1);
    let far = wave(magnitude, [PHASE1_COSINE, PHASE1_SINE], phase1(magnitude));
    from_eight(magnitude, near, x.lt(0).select(-far, far))
}

fn y0<'b>(x: Value<'b>) -> Value<'b> {
    let near = chebyshev(Y0_NEAR, x * x / 32.0 - 1.0) + x.log() * j0(x) * FRAC_2_PI;
    from_eight(x, near, wave(x, [PHASE0_COSINE, PHASE0_SINE], quarter_period_later(phase0(x))))
}

fn y1<'b>(x: Value<'b>) -> Value<'b> {
    let near = chebyshev(Y1_NEAR, x * x / 32.0 - 1.0) * x + (x.log() * j1(x) - x.recip()) * FRAC_2_PI;
    let near = x.eq(0).select(x.splat_like(f64::NEG_INFINITY), x.lt(0).select(x.splat_like(f64::NAN), near));
    from_eight(x, near, wave(x, [PHASE1_COSINE, PHASE1_SINE], quarter_period_later(phase1(x))))
}

/// The Airy function of the first kind.
fn airy<'b>(x: Value<'b>) -> Value<'b> {
    // ζ = ⅔ |x|^1.5 at x = 2, where the series meet.
    const BOUNDARY: f64 = 1.885_618_083_164_126_7;
    let magnitude = x.abs();
    let root = magnitude.sqrt();
    let zeta = magnitude * root * (2.0 / 3.0);
    let t = zeta.recip() * (2.0 * BOUNDARY) - 1.0;
    let scale = root.rsqrt() * (1.0 / PI.sqrt());
    let near = chebyshev(AIRY_NEAR, x * 0.5);
    let decaying = chebyshev(AIRY_FAR, t) * (-zeta).exp() * scale * 0.5;
    let phase = zeta + FRAC_PI_4;
    let oscillating = (chebyshev(AIRY_SINE, t) * phase.sin() - chebyshev(AIRY_COSINE, t) * phase.cos()) * scale;
    // PyTorch has no value at infinities.
    let far = (!x.is_infinite()).select(x.gt(0).select(decaying, oscillating), f64::NAN);
    magnitude.le(2.0).select(near, far)
}
