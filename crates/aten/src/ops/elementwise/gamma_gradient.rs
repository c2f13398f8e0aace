//! Derivatives of gamma and beta variables with respect to their shape parameters, by implicit reparametrization
//! (Figurnov, Mohamed and Mnih, "Implicit reparameterization gradients", 2018):
//!
//! ```text
//! dx/da = -(∂P(a, x)/∂a) / p(a, x)
//! ```
//!
//! P is the distribution function and p the density. The power series of P and the continued fraction of `1 - P` are
//! differentiated term by term. Most factors of the density cancel; the functions below contain the remaining ones.

use stablehlo::{DType, Value};

use crate::common::chebyshev::MOST_TERMS;
use crate::common::loops::of_elements;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["_standard_gamma_grad"], |cx| {
        cx.float_pointwise(["self", "output"], |given| of_elements(given, |[a, x]| of_gamma(a, x)))
    }),
    one(&["_dirichlet_grad"], |cx| {
        cx.float_pointwise(["x", "alpha", "total"], |given| of_elements(given, |[x, a, total]| of_beta(x, a, total)))
    }),
]);

fn of_gamma<'b>(a: Value<'b>, x: Value<'b>) -> Value<'b> {
    let by_series = x.le(a + 1.0);
    let restricted = |condition: Value<'b>, a_elsewhere: f64, x_elsewhere: f64| {
        (condition.select(a, a.splat_like(a_elsewhere)), condition.select(x, x.splat_like(x_elsewhere)))
    };
    let (series_a, series_x) = restricted(by_series, 1.0, 0.5);
    let (fraction_a, fraction_x) = restricted(!by_series, 1.0, 4.0);
    let moved = by_series.select(by_power_series(series_a, series_x), by_continued_fraction(fraction_a, fraction_x));
    x.eq(0).select(x * 0.0, moved)
}

/// `-(x/a) · ((log x - ψ(a + 1)) · S + ∂S/∂a)` with `S = Σ xⁿ / ((a + 1) … (a + n))`.
fn by_power_series<'b>(a: Value<'b>, x: Value<'b>) -> Value<'b> {
    let b = x.builder();
    let epsilon = x.dtype().epsilon();
    let axes: Vec<usize> = (0..x.rank()).collect();
    let (zero, one) = (x.splat_like(0), x.splat_like(1));
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), one, zero, one, zero, a, x],
        |state| {
            let remains = state[3].gt(state[1] * epsilon) | state[4].abs().gt(state[2].abs() * epsilon);
            state[0].lt(MOST_TERMS) & remains.reduce_any(&axes)
        },
        |state| {
            let [count, sum, slope, term, term_slope] = [state[0], state[1], state[2], state[3], state[4]];
            let (a, x) = (state[5], state[6]);
            let count = count + 1;
            let place = a + count.convert(a.dtype());
            let term_slope = (term_slope - term / place) * x / place;
            let term = term * x / place;
            vec![count, sum + term, slope + term_slope, term, term_slope, a, x]
        },
    );
    let (sum, slope) = (state[1], state[2]);
    -(x / a) * ((x.log() - (a + 1.0).digamma()) * sum + slope)
}

/// `x · K · (log x - ψ(a) + ∂ log K/∂a)` with Legendre's continued fraction K, by Lentz's method.
fn by_continued_fraction<'b>(a: Value<'b>, x: Value<'b>) -> Value<'b> {
    let b = x.builder();
    let epsilon = x.dtype().epsilon();
    let axes: Vec<usize> = (0..x.rank()).collect();
    let zero = x.splat_like(0);
    let first = x - a + 1.0;
    let start = first.recip();
    // The state: count, value, derivative of its logarithm, last factors of these two, C and D with their
    // derivatives, partial denominator, a.
    let moved = x.splat_like(1);
    let state =
        [b.scalar(0, DType::I32), start, start, moved, x.splat_like(1e30), zero, start, start * start, first, a];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(MOST_TERMS) & state[3].gt(epsilon).reduce_any(&axes),
        |state| {
            let [count, value, slope, c, c_slope] = [state[0], state[1], state[2], state[4], state[5]];
            let [d, d_slope, denominator, a] = [state[6], state[7], state[8], state[9]];
            let count = count + 1;
            let index = count.convert(a.dtype());
            let numerator = index * (a - index);
            let denominator = denominator + 2.0;
            let next_d = (numerator * d + denominator).recip();
            let d_slope = -(next_d * next_d) * (index * d + numerator * d_slope - 1.0);
            let next_c = denominator + numerator / c;
            let c_slope = (index - numerator * c_slope / c) / c - 1.0;
            let factor = next_c * next_d;
            let step = c_slope / next_c + d_slope / next_d;
            let moved = (factor - 1.0).abs().max(step.abs() / (slope.abs() + 1.0));
            vec![count, value * factor, slope + step, moved, next_c, c_slope, next_d, d_slope, denominator, a]
        },
    );
    x * state[1] * (x.log() - a.digamma() + state[2])
}

/// The derivative of a beta variable with shapes `a` and `b = total - a`, divided by `1 - x`, as `_dirichlet_grad`
/// needs it. It uses the series of the incomplete beta function in `u = x`, or in `u = 1 - x` with the shapes
/// exchanged, whichever does not cancel:
///
/// ```text
/// Σ tₙ with tₙ = tₙ₋₁ · u · (total + n - 1) / (p + n)
/// ```
fn of_beta<'b>(x: Value<'b>, a: Value<'b>, total: Value<'b>) -> Value<'b> {
    let builder = x.builder();
    let epsilon = x.dtype().epsilon();
    let axes: Vec<usize> = (0..x.broadcast_with(a).0.broadcast_with(total).0.rank()).collect();
    let (x, a) = x.broadcast_with(a);
    let (x, total) = x.broadcast_with(total);
    let a = a.broadcast_with(total).0;
    let b = total - a;
    // The series in the smaller of x and 1 - x converges faster. It is also used somewhat beyond the mean.
    let reaches = |u: Value<'b>, shape: Value<'b>| (u * (total + 2.0)).le(shape + 3.0);
    let is_low = (x.lt(0.5) & reaches(x, a)) | (x.ge(0.5) & !reaches(-x + 1.0, b));
    let (u, p) = (is_low.select(x, -x + 1.0), is_low.select(a, b));
    // The denominators depend on `a` only if p is `a`.
    let weight = is_low.convert(x.dtype());
    let (zero, one) = (x.splat_like(0), x.splat_like(1));
    let state = builder.while_loop(
        &[builder.scalar(0, DType::I32), one, zero, one, zero, u, p, total, weight],
        |state| {
            let remains = state[3].gt(state[1] * epsilon) | state[4].abs().gt(state[2].abs() * epsilon);
            state[0].lt(10 * MOST_TERMS) & remains.reduce_any(&axes)
        },
        |state| {
            let [count, sum, slope, term, term_slope] = [state[0], state[1], state[2], state[3], state[4]];
            let [u, p, total, weight] = [state[5], state[6], state[7], state[8]];
            let count = count + 1;
            let index = count.convert(u.dtype());
            let (above, below) = (total + index - 1.0, p + index);
            let ratio = u * above / below;
            let term = term * ratio;
            let term_slope = term_slope * ratio + term * (above.recip() - weight / below);
            vec![count, sum + term, slope + term_slope, term, term_slope, u, p, total, weight]
        },
    );
    let (sum, slope) = (state[1], state[2]);
    let level = x.log() + total.digamma();
    let low = -(x / a) * ((level - (a + 1.0).digamma()) * sum + slope);
    let high = (x / b) * ((level - a.digamma()) * sum + slope);
    x.eq(0).select(x * 0.0, is_low.select(low, high))
}
