//! Distributions with rejection sampling: every element is drawn again until it is accepted.

use stablehlo::{DType, Number, Value};

use crate::common::random_bits::{bits_type, normal, open};
use crate::cx::Cx;
use crate::error::Error;
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["_standard_gamma"], |cx| {
        let shape = cx.tensor("self")?;
        Ok(gamma(cx, shape.convert(shape.dtype().opmath())).convert(shape.dtype()))
    }),
    one(&["_sample_dirichlet"], |cx| {
        let shape = cx.tensor("self")?;
        let dtype = shape.dtype();
        let draws = gamma(cx, shape.convert(dtype.opmath()));
        let axis = [shape.rank().saturating_sub(1)];
        Ok((draws / draws.reduce_sum(&axis).keep_dims(&axis)).convert(dtype))
    }),
    one(&["poisson"], |cx| {
        let rate = cx.tensor("self")?;
        cx.check_not_negative(rate, Error::runtime("invalid Poisson rate, expected rate to be non-negative"));
        Ok(poisson(cx, rate.convert(rate.dtype().opmath())).convert(rate.dtype()))
    }),
    one(&["binomial"], |cx| {
        let (count, p) = (cx.tensor("count")?, cx.tensor("prob")?);
        let dtype = count.dtype();
        let (count, p) = count.convert(dtype.opmath()).broadcast_with(p.convert(dtype.opmath()));
        Ok(binomial(cx, count, p).convert(dtype))
    }),
];

/// Random numbers in a loop: a Philox stream whose key is drawn from the call's stream.
struct Stream<'b> {
    state: Value<'b>,
    dtype: DType,
    dims: Vec<i64>,
}

impl<'b> Stream<'b> {
    fn bits(&mut self) -> Value<'b> {
        let (state, bits) = self.state.builder().random_bits(self.state, bits_type(self.dtype), &self.dims);
        self.state = state;
        bits
    }

    /// Uniform in (0, 1).
    fn uniform(&mut self) -> Value<'b> {
        open(self.bits())
    }

    fn normal(&mut self) -> Value<'b> {
        normal(self.bits())
    }
}

/// Runs `round` on all elements, with random numbers, until none is `unfinished`. Regions can only use their
/// arguments, so other values that a round needs are passed as `params`.
///
/// `unfinished` and `round` must only depend on the stored state. XLA may compute another value twice, with different
/// rounding, and two comparisons of it could then disagree.
fn repeat<'b>(
    cx: &Cx<'b>,
    start: &[Value<'b>],
    params: &[Value<'b>],
    unfinished: impl FnOnce(&[Value<'b>]) -> Value<'b>,
    round: impl FnOnce(&mut Stream<'b>, &[Value<'b>], &[Value<'b>]) -> Vec<Value<'b>>,
) -> Vec<Value<'b>> {
    let (dtype, dims) = (params[0].dtype(), params[0].dims());
    let axes: Vec<usize> = (0..dims.len()).collect();
    let count = start.len();
    let state = [&[cx.random_bits(DType::U64, &[2])], start, params].concat();
    let end = cx.b().while_loop(
        &state,
        |state| unfinished(&state[1..=count]).reduce_any(&axes),
        |state| {
            let mut stream = Stream { state: state[0], dtype, dims: dims.clone() };
            let next = round(&mut stream, &state[1..=count], &state[count + 1..]);
            [&[stream.state], next.as_slice(), &state[count + 1..]].concat()
        },
    );
    end[1..=count].to_vec()
}

/// Repeats `attempt` for the `wanted` elements until it has accepted a candidate for each; the others are zero.
/// `attempt` gets `params` and returns candidates and whether they are accepted. Accepted candidates must not be
/// negative.
fn until_accepted<'b>(
    cx: &Cx<'b>,
    wanted: Value<'b>,
    params: &[Value<'b>],
    attempt: impl FnOnce(&mut Stream<'b>, &[Value<'b>]) -> (Value<'b>, Value<'b>),
) -> Value<'b> {
    let pending = params[0].splat_like(-1);
    let end = repeat(
        cx,
        &[wanted.select(pending, 0)],
        params,
        |drawn| drawn[0].lt(0),
        |stream, drawn, params| {
            let (candidate, accepted) = attempt(stream, params);
            vec![(drawn[0].lt(0) & accepted).select(candidate, drawn[0])]
        },
    );
    end[0]
}

/// The number of random steps, of lengths drawn by `length`, whose sum is at most `limit`.
fn steps_within<'b>(
    cx: &Cx<'b>,
    limit: Value<'b>,
    params: &[Value<'b>],
    length: impl FnOnce(&mut Stream<'b>, &[Value<'b>]) -> Value<'b>,
) -> Value<'b> {
    // The state is the position after the next step and the number of steps completed. The initial step has length 0,
    // so the count starts at -1.
    let start = [limit.splat_like(0), limit.splat_like(-1)];
    let params = [&[limit], params].concat();
    let within = |state: &[Value<'b>], limit: Value<'b>| state[0].le(limit);
    let end = repeat(
        cx,
        &[start[0], start[1], limit],
        &params,
        |state| within(state, state[2]),
        |stream, state, params| {
            let fits = within(state, state[2]);
            let step = length(stream, &params[1..]);
            vec![fits.select(state[0] + step, state[0]), fits.select(state[1] + 1, state[1]), state[2]]
        },
    );
    end[1].max(0)
}

/// Gamma numbers of the given shapes with scale 1 (Marsaglia and Tsang, "A simple method for generating gamma
/// variables", 2000). For shapes below 1, a draw is multiplied by a power of a uniform number.
fn gamma<'b>(cx: &Cx<'b>, shape: Value<'b>) -> Value<'b> {
    let dtype = shape.dtype();
    let small = shape.lt(1);
    let d = small.select(shape + 1, shape) - 1.0 / 3.0;
    let c = (d * 9).rsqrt();
    let wanted = shape.gt(0) & shape.is_finite();
    let draws = until_accepted(cx, wanted, &[d, c], |stream, params| {
        let (d, c) = (params[0], params[1]);
        let x = stream.normal();
        let root = c * x + 1;
        let v = root * root * root;
        let log_v = root.gt(0).select(v, 1).log();
        let accepted = root.gt(0) & stream.uniform().log().lt(x.square() * 0.5 + d - d * v + d * log_v);
        (d * v, accepted)
    });
    let boost = open(cx.random_bits(bits_type(dtype), &shape.dims())).log() / shape;
    let draws = small.select(draws * boost.exp(), draws);
    // The logarithm of zero would be infinite. A shape out of range gives NaN.
    wanted.select(draws.max(dtype.smallest_normal()), f64::NAN)
}

/// The error of Stirling's formula for `log(x!)` about `x + 1`.
fn stirling_tail(x: Value<'_>) -> Value<'_> {
    let y = (x + 1).recip();
    let y2 = y.square();
    y * (-y2 * (-y2 * (1.0 / 1260.0) + 1.0 / 360.0) + 1.0 / 12.0)
}

/// Poisson numbers. For small rates, counts arrivals in unit time; else algorithm PTRS of Hörmann, "The transformed
/// rejection method for generating Poisson random variables" (1993).
fn poisson<'b>(cx: &Cx<'b>, rate: Value<'b>) -> Value<'b> {
    let small = rate.lt(10);
    let counted = steps_within(cx, small.select(rate, -1), &[], |stream, _| -stream.uniform().log());

    let wanted = !small & rate.is_finite();
    let high = wanted.select(rate, 10);
    let b = high.sqrt() * 2.53 + 0.931;
    let a = b * 0.02483 - 0.059;
    let rejected = until_accepted(cx, wanted, &[high, a, b], |stream, params| {
        let (rate, a, b) = (params[0], params[1], params[2]);
        let u = stream.uniform() - 0.5;
        let v = stream.uniform();
        let margin = -u.abs() + 0.5;
        let k = ((a * 2 / margin + b) * u + rate + 0.43).floor();
        let inverse_alpha = (b - 3.4).recip() * 1.1328 + 1.1239;
        let quick = margin.ge(0.07) & v.le((b - 2).recip() * -3.6224 + 0.9277);
        let outside = k.lt(0) | (margin.lt(0.013) & v.gt(margin));
        // The log of rate^k · exp(-rate) / k! by Stirling's formula, arranged so that large terms do not cancel.
        let y = k.max(0) + 1;
        let log_mass = (y - 1) * ((rate - y) / y).log_1p() - y.log() * 0.5 + (y - rate)
            - (0.5 * (2.0 * std::f64::consts::PI).ln())
            - stirling_tail(y - 1);
        let accepted = (v * inverse_alpha / (a / (margin.square()) + b)).log().le(log_mass);
        (k, quick | (!outside & accepted))
    });
    let drawn = small.select(counted, rejected);
    (rate.ge(0) & rate.is_finite()).select(drawn, f64::NAN)
}

/// Binomial numbers. For small means, counts successes; else algorithm BTRS of Hörmann, "The generation of binomial
/// random variates" (1993).
fn binomial<'b>(cx: &Cx<'b>, count: Value<'b>, p: Value<'b>) -> Value<'b> {
    let valid = count.ge(0) & count.is_finite() & p.ge(0) & p.le(1);
    let count = valid.select(count.floor(), 1);
    let p = valid.select(p, 0);
    let mirrored = p.gt(0.5);
    let p = mirrored.select(-p + 1, p);
    let small = (count * p).lt(10);

    // The number of trials between successes is geometric.
    let limit = (valid & small).select(count, -1);
    let log_failure = (-p).log_1p();
    let counted =
        steps_within(cx, limit, &[log_failure], |stream, params| (stream.uniform().log() / params[0]).ceil().max(1));

    let wanted = valid & !small;
    let rejected = until_accepted(cx, wanted, &[count, p], |stream, params| {
        let (n, p) = (params[0], params[1]);
        let odds = p / (-p + 1);
        let deviation = (n * p * (-p + 1)).sqrt();
        let b = deviation * 2.53 + 1.15;
        let a = b * 0.0248 + p * 0.01 - 0.0873;
        let mode = ((n + 1) * p).floor();
        let u = stream.uniform() - 0.5;
        let v = stream.uniform();
        let margin = -u.abs() + 0.5;
        let k = ((a * 2 / margin + b) * u + n * p + 0.5).floor();
        let quick = margin.ge(0.07) & v.le(b.recip() * -4.2 + 0.92);
        let inside = k.ge(0) & k.le(n);
        let k = inside.select(k, mode);
        let alpha = (b.recip() * 5.1 + 2.83) * deviation;
        let (rest, mode_rest) = (n - k + 1, n - mode + 1);
        let bound = (mode + 0.5) * ((mode + 1) / (odds * mode_rest)).log()
            + (n + 1) * ((k - mode) / rest).log_1p()
            + (k + 0.5) * (odds * rest / (k + 1)).log()
            + stirling_tail(mode)
            + stirling_tail(n - mode)
            - stirling_tail(k)
            - stirling_tail(n - k);
        let accepted = (v * alpha / (a / (margin.square()) + b)).log().le(bound);
        (k, inside & (quick | accepted))
    });
    let drawn = small.select(counted, rejected);
    let drawn = mirrored.select(count - drawn, drawn);
    valid.select(drawn, Number::Float(f64::NAN))
}
