//! Special functions of probability and number theory.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, PI, SQRT_2};

use stablehlo::{DType, DTypes, Value};

use crate::common::chebyshev::{ERFCX, MOST_TERMS, chebyshev};
use crate::common::loops::of_elements;
use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["erf"], |cx| cx.float_unary(|x| x.erf())),
    one(&["erfc"], |cx| cx.float_unary(|x| x.erfc())),
    one(&["erfinv"], |cx| cx.float_unary(|x| x.erf_inv())),
    one(&["special_erfcx"], |cx| cx.float_unary(erfcx)),
    one(&["special_log_ndtr"], |cx| cx.float_unary(log_ndtr)),
    one(&["special_ndtri"], |cx| cx.float_unary(ndtri)),
    one(&["special_entr"], |cx| {
        cx.float_unary(|x| {
            let outside = x.lt(0).select(x.splat_like(f64::NEG_INFINITY), x * 0.0);
            x.gt(0).select(-x * x.log(), outside)
        })
    }),
    one(&["lgamma"], |cx| cx.float_unary(|x| x.lgamma())),
    one(&["digamma"], |cx| cx.float_unary(digamma)),
    one(&["polygamma"], polygamma),
    one(&["special_zeta", "special_zeta.self_scalar", "special_zeta.other_scalar"], |cx| {
        cx.float_pointwise(["self", "other"], |[x, q]| zeta(x, q))
    }),
    one(&["igamma"], |cx| {
        cx.float_pointwise(["self", "other"], |given| of_elements(given, |[a, x]| incomplete_gamma(a, x).0))
    })
    .takes(&["self", "other"], DTypes::FLOATS),
    one(&["igammac"], |cx| {
        cx.float_pointwise(["self", "other"], |given| of_elements(given, |[a, x]| incomplete_gamma(a, x).1))
    })
    .takes(&["self", "other"], DTypes::FLOATS),
]);

/// `exp(x²) erfc(x)` (Shepherd and Laframboise, "Chebyshev approximation of (1 + 2x) exp(x²) erfc x in
/// 0 ≤ x < ∞", 1981).
fn erfcx<'b>(x: Value<'b>) -> Value<'b> {
    let magnitude = x.abs();
    let series = chebyshev(ERFCX, -(magnitude + 3.75).recip() * 7.5 + 1.0);
    let positive = series / (magnitude * 2.0 + 1.0);
    x.lt(0).select((x * x).exp() * 2.0 - positive, positive)
}

/// The logarithm of the normal distribution function.
fn log_ndtr<'b>(x: Value<'b>) -> Value<'b> {
    let scaled = x * FRAC_1_SQRT_2;
    let tail = (erfcx(-scaled) * 0.5).log() - scaled * scaled;
    x.lt(-1.0).select(tail, (scaled.erfc() * -0.5).log_1p())
}

/// The quantile function of the normal distribution. In the tails, Newton's method on the logarithm of the lower
/// tail, starting from Winitzki's approximation of erf⁻¹ ("A handy approximation for the error function and its
/// inverse", 2008).
fn ndtri<'b>(p: Value<'b>) -> Value<'b> {
    const WINITZKI: f64 = 0.147;
    let upper = p.gt(0.5);
    let tail = upper.select(-p + 1.0, p);
    let log_tail = tail.log();
    let log_product = (tail * (-tail + 1.0) * 4.0).log();
    let middle = log_product * 0.5 + 2.0 / (PI * WINITZKI);
    let mut x = -((middle * middle - log_product / WINITZKI).sqrt() - middle).sqrt() * SQRT_2;
    for _ in 0..3 {
        let inverse_slope = erfcx(x * -FRAC_1_SQRT_2) / (FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
        x = x - (log_ndtr(x) - log_tail) * inverse_slope;
    }
    let x = tail.eq(0).select(x.splat_like(f64::NEG_INFINITY), x);
    let central = (p * 2.0 - 1.0).erf_inv() * SQRT_2;
    tail.gt(0.1).select(central, upper.select(-x, x))
}

fn digamma<'b>(x: Value<'b>) -> Value<'b> {
    // At zero, digamma is infinite with the sign opposite to that of the zero.
    x.eq(0).select(x.splat_like(f64::INFINITY).copy_sign(-x), x.digamma())
}

/// Hurwitz's zeta function, with PyTorch's values at poles and outside the domain.
fn zeta<'b>(x: Value<'b>, q: Value<'b>) -> Value<'b> {
    let (x, q) = x.broadcast_with(q);
    let pole = x.eq(1) | (q.le(0) & q.floor().eq(q));
    // A negative q is allowed if x is an integer. The terms from q up to its fractional part are another sum, which
    // is subtracted. Equal sums cancel before anything is added that is smaller than their rounding.
    let negative = q.lt(0);
    let above = |start: Value<'b>| summed_powers(x, negative.select(start, start.splat_like(1)));
    let is_odd = (x * 0.5).floor().ne(x * 0.5);
    let (fraction, mirrored, beyond) = (above(q - q.floor()), above(q.ceil() - q), above(-q + 1.0));
    let difference = fraction.ne(mirrored).select(fraction - mirrored, 0.0);
    let below = is_odd.select(difference + beyond, fraction + (mirrored - beyond));
    let below = x.floor().eq(x).select(below, f64::NAN);
    let value = negative.select(below, summed_powers(x, q));
    let value = pole.select(q.splat_like(f64::INFINITY), value);
    x.lt(1).select(q.splat_like(f64::NAN), value)
}

/// The sum of `(q + n)⁻ˣ` over all n from 0 on, for positive q.
fn summed_powers<'b>(x: Value<'b>, q: Value<'b>) -> Value<'b> {
    // From here on, powers of 2 and larger numbers are 0 beside the first summand. XLA's expansion overflows there.
    let large = if x.dtype() == DType::F64 { 1100.0 } else { 150.0 };
    let is_large = x.gt(large) & x.is_finite() & q.is_finite();
    is_large.select(q.pow(-x), x.zeta(q))
}

fn polygamma<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let order = cx.int("n")?;
    cx.float_unary(|x| match order {
        0 => digamma(x),
        1 => {
            // The series converges badly for small arguments, so those use the reflection formula.
            let reflected = x.lt(0.5);
            let above = reflected.select(-x + 1.0, x);
            let value = above.eq(f64::INFINITY).select(above.splat_like(0), above.splat_like(2).zeta(above));
            let sine = (x * PI).sin() / PI;
            reflected.select((sine * sine).recip() - value, value)
        }
        _ => {
            // Larger factorials are infinite.
            let factorial: f64 = (1..=order.min(171)).map(|i| i as f64).product();
            let sign = if order % 2 == 0 { -1.0 } else { 1.0 };
            // Where no float32 holds the factorial, the sum may be too small for one.
            let fits = factorial <= f32::MAX.into();
            let wide = if fits { x } else { x.convert(DType::F64) };
            (zeta(wide.splat_like(order as f64 + 1.0), wide) * (sign * factorial)).convert(x.dtype())
        }
    })
}

/// The regularised incomplete gamma functions P and Q. Uses the power series of P where `x < a + 1`, else Legendre's
/// continued fraction of Q by Lentz's method (Press et al., "Numerical Recipes", § 6.2).
fn incomplete_gamma<'b>(a: Value<'b>, x: Value<'b>) -> (Value<'b>, Value<'b>) {
    let (a, x) = a.broadcast_with(x);
    let regular = a.gt(0) & a.is_finite() & x.gt(0) & x.is_finite();
    let by_series = x.lt(a + 1.0);
    let restricted = |condition: Value<'b>, a_elsewhere: f64, x_elsewhere: f64| {
        (condition.select(a, a.splat_like(a_elsewhere)), condition.select(x, x.splat_like(x_elsewhere)))
    };
    let density = gamma_density(a, x);
    let (series_a, series_x) = restricted(regular & by_series, 1.0, 0.5);
    let series = density / a * power_series(series_a, series_x);
    let (fraction_a, fraction_x) = restricted(regular & !by_series, 1.0, 4.0);
    let fraction = density * continued_fraction(fraction_a, fraction_x);
    let (p, q) = (by_series.select(series, -fraction + 1.0), by_series.select(-series + 1.0, fraction));
    // At the borders of the domain, P and Q are 0 and 1.
    let invalid =
        a.lt(0) | x.lt(0) | a.is_nan() | x.is_nan() | (a.eq(0) & x.eq(0)) | (a.is_infinite() & x.is_infinite());
    let nothing_below = x.eq(0) | a.is_infinite();
    let border = |value: Value<'b>, below: f64, above: f64| {
        let limit = nothing_below.select(value.splat_like(below), value.splat_like(above));
        invalid.select(value.splat_like(f64::NAN), regular.select(value, limit))
    };
    (border(p, 0.0, 1.0), border(q, 1.0, 0.0))
}

/// `x^a exp(-x) / Γ(a)`. Uses Stirling's series for a large `a`, because its logarithm does not cancel.
fn gamma_density<'b>(a: Value<'b>, x: Value<'b>) -> Value<'b> {
    let direct = (a * x.log() - x - a.lgamma()).exp();
    let excess = (x - a) / a;
    let inverse = a.recip();
    let square = inverse * inverse;
    let terms = [1.0 / 1188.0, -1.0 / 1680.0, 1.0 / 1260.0, -1.0 / 360.0, 1.0 / 12.0];
    let correction = terms.into_iter().fold(a.splat_like(0), |sum, term| sum * square + term) * inverse;
    let stirling = (a * (excess.log_1p() - excess) - correction).exp() * (a / (2.0 * PI)).sqrt();
    a.lt(10.0).select(direct, stirling)
}

fn power_series<'b>(a: Value<'b>, x: Value<'b>) -> Value<'b> {
    let builder = x.builder();
    let epsilon = x.dtype().epsilon();
    let axes: Vec<usize> = (0..x.rank()).collect();
    let one = x.splat_like(1);
    let continues = |state: &[Value<'b>]| state[0].lt(MOST_TERMS) & state[2].gt(state[1] * epsilon).reduce_any(&axes);
    let step = |state: &[Value<'b>]| {
        let [count, sum, term, a, x] = [state[0], state[1], state[2], state[3], state[4]];
        let count = count + 1;
        let term = term * x / (a + count.convert(a.dtype()));
        vec![count, sum + term, term, a, x]
    };
    builder.while_loop(&[builder.scalar(0, DType::I32), one, one, a, x], continues, step)[1]
}

fn continued_fraction<'b>(a: Value<'b>, x: Value<'b>) -> Value<'b> {
    let builder = x.builder();
    let epsilon = x.dtype().epsilon();
    let axes: Vec<usize> = (0..x.rank()).collect();
    let first = x - a + 1.0;
    let start = first.recip();
    // The state: count, value, factor of the last step, C, D, partial denominator, a.
    let state = [builder.scalar(0, DType::I32), start, x.splat_like(0), x.splat_like(1e30), start, first, a];
    let continues =
        |state: &[Value<'b>]| state[0].lt(MOST_TERMS) & (state[2] - 1.0).abs().gt(epsilon).reduce_any(&axes);
    let step = |state: &[Value<'b>]| {
        let [count, value, last, c, d, denominator, a] =
            [state[0], state[1], state[2], state[3], state[4], state[5], state[6]];
        let count = count + 1;
        let index = count.convert(a.dtype());
        let numerator = index * (a - index);
        let denominator = denominator + 2.0;
        let d = (numerator * d + denominator).recip();
        let c = denominator + numerator / c;
        // The factors of an element that is done differ from one by rounding, and other elements need many.
        let factor = (last - 1.0).abs().gt(epsilon).select(c * d, 1);
        vec![count, value * factor, factor, c, d, denominator, a]
    };
    builder.while_loop(&state, continues, step)[1]
}
