//! Classical orthogonal polynomials, by their three-term recurrences.

use stablehlo::Value;

use crate::common::loops::of_elements;
use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(
        &[
            "special_chebyshev_polynomial_t",
            "special_chebyshev_polynomial_t.n_scalar",
            "special_chebyshev_polynomial_t.x_scalar",
        ],
        |cx| polynomial(cx, |x| x, |x| x, chebyshev_step),
    ),
    one(
        &[
            "special_chebyshev_polynomial_u",
            "special_chebyshev_polynomial_u.n_scalar",
            "special_chebyshev_polynomial_u.x_scalar",
        ],
        |cx| polynomial(cx, |x| x, |x| x * 2.0, chebyshev_step),
    ),
    one(
        &[
            "special_chebyshev_polynomial_v",
            "special_chebyshev_polynomial_v.n_scalar",
            "special_chebyshev_polynomial_v.x_scalar",
        ],
        |cx| polynomial(cx, |x| x, |x| x * 2.0 - 1.0, chebyshev_step),
    ),
    one(
        &[
            "special_chebyshev_polynomial_w",
            "special_chebyshev_polynomial_w.n_scalar",
            "special_chebyshev_polynomial_w.x_scalar",
        ],
        |cx| polynomial(cx, |x| x, |x| x * 2.0 + 1.0, chebyshev_step),
    ),
    one(
        &[
            "special_shifted_chebyshev_polynomial_t",
            "special_shifted_chebyshev_polynomial_t.n_scalar",
            "special_shifted_chebyshev_polynomial_t.x_scalar",
        ],
        |cx| polynomial(cx, shifted, |x| x, chebyshev_step),
    ),
    one(
        &[
            "special_shifted_chebyshev_polynomial_u",
            "special_shifted_chebyshev_polynomial_u.n_scalar",
            "special_shifted_chebyshev_polynomial_u.x_scalar",
        ],
        |cx| polynomial(cx, shifted, |x| x * 2.0, chebyshev_step),
    ),
    one(
        &[
            "special_shifted_chebyshev_polynomial_v",
            "special_shifted_chebyshev_polynomial_v.n_scalar",
            "special_shifted_chebyshev_polynomial_v.x_scalar",
        ],
        |cx| polynomial(cx, shifted, |x| x * 2.0 - 1.0, chebyshev_step),
    ),
    one(
        &[
            "special_shifted_chebyshev_polynomial_w",
            "special_shifted_chebyshev_polynomial_w.n_scalar",
            "special_shifted_chebyshev_polynomial_w.x_scalar",
        ],
        |cx| polynomial(cx, shifted, |x| x * 2.0 + 1.0, chebyshev_step),
    ),
    one(
        &[
            "special_hermite_polynomial_h",
            "special_hermite_polynomial_h.n_scalar",
            "special_hermite_polynomial_h.x_scalar",
        ],
        |cx| polynomial(cx, |x| x, |x| x * 2.0, |at| (at.x * at.last - at.degree * at.before) * 2.0),
    ),
    one(
        &[
            "special_hermite_polynomial_he",
            "special_hermite_polynomial_he.n_scalar",
            "special_hermite_polynomial_he.x_scalar",
        ],
        |cx| polynomial(cx, |x| x, |x| x, |at| at.x * at.last - at.degree * at.before),
    ),
    one(
        &[
            "special_laguerre_polynomial_l",
            "special_laguerre_polynomial_l.n_scalar",
            "special_laguerre_polynomial_l.x_scalar",
        ],
        |cx| {
            polynomial(
                cx,
                |x| x,
                |x| -x + 1.0,
                |at| ((at.degree * 2.0 + 1.0 - at.x) * at.last - at.degree * at.before) / (at.degree + 1.0),
            )
        },
    ),
    one(
        &[
            "special_legendre_polynomial_p",
            "special_legendre_polynomial_p.n_scalar",
            "special_legendre_polynomial_p.x_scalar",
        ],
        |cx| {
            polynomial(
                cx,
                |x| x,
                |x| x,
                |at| ((at.degree * 2.0 + 1.0) * at.x * at.last - at.degree * at.before) / (at.degree + 1.0),
            )
        },
    ),
]);

/// One step of a recurrence: the polynomials of `degree` and of the degree before it, at `x`.
struct Step<'b> {
    degree: Value<'b>,
    x: Value<'b>,
    last: Value<'b>,
    before: Value<'b>,
}

fn chebyshev_step(at: Step<'_>) -> Value<'_> {
    at.x * 2.0 * at.last - at.before
}

/// Maps [0, 1] to [-1, 1].
fn shifted(x: Value<'_>) -> Value<'_> {
    x * 2.0 - 1.0
}

/// The polynomial of degree `n` at `variable(x)`, elementwise in both: 1 for degree 0, `first` for degree 1, `next`
/// for each higher degree, and zero for a negative degree.
fn polynomial<'b>(
    cx: &Cx<'b>,
    variable: impl FnOnce(Value<'b>) -> Value<'b>,
    first: impl FnOnce(Value<'b>) -> Value<'b>,
    next: impl FnOnce(Step<'b>) -> Value<'b>,
) -> Result<Value<'b>> {
    cx.float_pointwise(["x", "n"], |[x, n]| {
        let (x, n) = variable(x).broadcast_with(n);
        let n = n.trunc();
        let axes: Vec<usize> = (0..x.rank()).collect();
        // The loop would not end for an infinite degree, or for that of padding.
        let highest = n.is_finite().select(n, 0).reduce_max(&axes);
        let start = x.builder().scalar(1, x.dtype());
        of_elements([x, n], |[x, n]| {
            let (zero, one) = (x.splat_like(0), x.splat_like(1));
            let state = [start, one, first(x), x, n, highest];
            let continues = |state: &[Value<'b>]| state[0].lt(state[5]);
            let step = |state: &[Value<'b>]| {
                let [degree, before, last, x, n, highest] =
                    [state[0], state[1], state[2], state[3], state[4], state[5]];
                let unfinished = n.gt(degree);
                let higher = next(Step { degree, x, last, before });
                let last_or = unfinished.select(higher, last);
                vec![degree + 1, unfinished.select(last, before), last_or, x, n, highest]
            };
            let at_degree = x.builder().while_loop(&state, continues, step)[2];
            n.lt(0).select(zero, n.eq(0).select(one, at_degree))
        })
    })
}
