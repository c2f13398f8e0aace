//! Connectionist temporal classification: the likelihood of a sequence of labels over all its alignments with a
//! longer sequence of predictions, by the forward-backward algorithm (Graves et al., 2006).
//!
//! Blanks are inserted before, between and after the labels: S labels give 2 · S + 1 states.

use stablehlo::{DType, DTypes, DotDims, Number, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{running_sum, take_along, take_flat};
use crate::row::{Row, Setting, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["_ctc_loss"], forward)
        .takes(&["log_probs"], DTypes::of(&[DType::F32, DType::F64]))
        .inputs(&["blank"])
        .varies(LENGTHS, |lengths, setting| {
            let (inputs, _) = lengths.split_at(lengths.len() / 2);
            let times = 0..=*setting.sizes.first()?;
            longest_target(lengths, setting).filter(|_| inputs.iter().all(|length| times.contains(length)))
        })
        .open_offsets()
        .bounded(),
    one(&["_ctc_loss_backward"], backward)
        .inputs(&["blank"])
        .varies(LENGTHS, longest_target)
        .open_offsets()
        .bounded()
        .bounds_results(),
];

const LENGTHS: &[&str] = &["input_lengths", "target_lengths"];

/// The number of states follows from the longest target. Other lengths are inputs of the program, where PyTorch takes
/// them.
fn longest_target(lengths: &[i64], _: &Setting<'_>) -> Option<Vec<i64>> {
    let (_, targets) = lengths.split_at(lengths.len() / 2);
    let longest = targets.iter().max().map(|longest| vec![*longest]);
    longest.filter(|_| lengths.iter().all(|&length| length >= 0))
}

const NEVER: f64 = f64::NEG_INFINITY;

struct Problem<'b> {
    /// The class of each state: [batch, state] (int32).
    classes: Value<'b>,
    /// The log probability of each state's class: [time, batch, state].
    emissions: Value<'b>,
    /// Whether the state two before may precede a state, which skips a blank: [batch, state].
    skips: Value<'b>,
    /// The number of predictions and of states of each sample: [batch, 1] (int32).
    times: Value<'b>,
    states: Value<'b>,
    /// The number of times, 0-d (int32).
    end: Value<'b>,
}

impl<'b> Problem<'b> {
    fn of(cx: &Cx<'b>) -> Result<Problem<'b>> {
        let b = cx.b();
        let log_probs = cx.tensor("log_probs")?;
        log_probs.require_whole(&[1, 2], "the batch or the classes of ctc_loss");
        log_probs.require_prefix(0, "the times of ctc_loss in merged dimensions");
        let end = log_probs.size(0, DType::I32);
        let log_probs = log_probs.without_extents();
        let dims = log_probs.dims();
        let lengths = |name| Ok::<_, Error>(cx.vector(name)?.convert(DType::I32));
        let (input_lengths, target_lengths) = (lengths("input_lengths")?, lengths("target_lengths")?);
        let batch = target_lengths.numel();

        let targets = cx.tensor("targets")?.convert(DType::I32);
        if targets.rank() == 2 {
            targets.require_whole(&[0], "the batch of ctc_loss");
        }
        targets.require_prefix(targets.rank() - 1, "the targets of ctc_loss in merged dimensions");
        let targets = targets.without_extents();
        let longest = longest(cx)?;
        let labels = if targets.rank() == 1 {
            // The labels of all samples are concatenated.
            let starts = running_sum(target_lengths) - target_lengths;
            let place = b.iota(DType::I32, &[batch, longest], 1) + starts.unsqueeze(1);
            take_flat(targets.pad_axis(0, 0, 0, 1), place.min(targets.numel()))
        } else {
            targets.pad_axis(1, 0, 0, longest - targets.dim(1))
        };
        let blank = cx.scalar("blank", DType::I32)?;
        let pairs = b.concatenate(&[blank.broadcast_to(&labels.dims()).unsqueeze(2), labels.unsqueeze(2)], 2);
        let pairs = pairs.reshape(&[batch, 2 * longest]);
        let classes = b.concatenate(&[pairs, blank.broadcast_to(&[batch, 1])], 1);

        let wide = log_probs.convert(log_probs.dtype().opmath());
        let every_time = classes.broadcast_to(&[dims[0], batch, 2 * longest + 1]);
        let odd = (b.iota(DType::I32, &classes.dims(), 1) & 1).ne(0);
        Ok(Problem {
            classes,
            emissions: take_along(wide, 2, every_time),
            skips: odd & classes.ne(shifted(classes, 2, -1)),
            times: input_lengths.unsqueeze(1),
            states: (target_lengths * 2 + 1).unsqueeze(1),
            end,
        })
    }

    /// State numbers: [batch, state].
    fn state(&self) -> Value<'b> {
        self.classes.builder().iota(DType::I32, &self.classes.dims(), 1)
    }

    /// Whether a state is one of the two last states, in which an alignment may end.
    fn is_last(&self) -> Value<'b> {
        let from_end = self.states - self.state();
        from_end.eq(1) | from_end.eq(2)
    }
}

/// The length of the longest target. The likelihoods have two states for each label, and one more.
fn longest(cx: &Cx<'_>) -> Result<i64> {
    if let Ok(lengths) = cx.dims("target_lengths")
        && lengths.iter().all(|length| length.sizes.is_empty())
    {
        return Ok(lengths.iter().map(|length| length.capacity).max().unwrap_or(0));
    }
    let states = match (cx.result_dims(1), cx.result(1)) {
        (Some(likelihoods), _) => likelihoods.last().map(|states| states.capacity),
        (None, Some(likelihoods)) => likelihoods.sizes.last().copied(),
        (None, None) => cx.ty("log_alpha")?.dims.last().copied(),
    };
    Ok(states.unwrap_or(1) / 2)
}

/// Shifts states up by `by` (down if negative) and inserts `fill`.
fn shifted<'b>(x: Value<'b>, by: i64, fill: impl Into<Number>) -> Value<'b> {
    x.pad_axis(x.rank() - 1, fill, by, -by)
}

fn log_sum<'b>(a: Value<'b>, b: Value<'b>, c: Value<'b>) -> Value<'b> {
    let largest = a.max(b).max(c);
    let shift = largest.is_finite().select(largest, 0.0);
    ((a - shift).exp() + (b - shift).exp() + (c - shift).exp()).log() + shift
}

/// The part of a [time, batch, state] value at a time (0-d).
pub(crate) fn at_time<'b>(x: Value<'b>, time: Value<'b>) -> Value<'b> {
    let dims = x.dims();
    let zero = time.splat_like(0);
    x.dynamic_slice(&[time, zero, zero], &[1, dims[1], dims[2]]).reshape(&dims[1..])
}

/// A [time, batch, state] value with another part at a time (0-d).
pub(crate) fn with_time<'b>(x: Value<'b>, time: Value<'b>, part: Value<'b>) -> Value<'b> {
    let zero = time.splat_like(0);
    x.dynamic_update_slice(part.unsqueeze(0), &[time, zero, zero])
}

/// For each time and state, the log probability of emitting the labels up to and including that time and being in
/// that state.
fn alphas<'b>(problem: &Problem<'b>) -> Value<'b> {
    let b = problem.classes.builder();
    let emissions = problem.emissions;
    let dims = emissions.dims();
    let starts = problem.state().lt(2) & problem.state().lt(problem.states);
    let first = starts.select(emissions.select_axis(0, 0), NEVER);
    let all = first.unsqueeze(0).pad_axis(0, NEVER, 0, dims[0] - 1);
    let state = [b.scalar(1, DType::I32), first, all, emissions, problem.skips, problem.end];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(state[5]),
        |state| {
            let [time, alpha, all, emissions, skips, end] =
                [state[0], state[1], state[2], state[3], state[4], state[5]];
            let skipped = skips.select(shifted(alpha, 2, NEVER), NEVER);
            let next = log_sum(alpha, shifted(alpha, 1, NEVER), skipped) + at_time(emissions, time);
            vec![time + 1, next, with_time(all, time, next), emissions, skips, end]
        },
    );
    state[2]
}

/// For each time and state, the log probability of emitting the remaining labels from that time on, given that state.
fn betas<'b>(problem: &Problem<'b>) -> Value<'b> {
    let b = problem.classes.builder();
    let emissions = problem.emissions;
    let (dims, dtype) = (emissions.dims(), emissions.dtype());
    let skipping = shifted(problem.skips, -2, false);
    let none = b.splat(NEVER, dtype, &dims[1..]);
    let all = b.splat(NEVER, dtype, &dims);
    let state = [problem.end - 1, none, all, emissions, skipping, problem.times, problem.is_last()];
    let state = b.while_loop(
        &state,
        |state| state[0].ge(0),
        |state| {
            let [time, beta, all, emissions, skipping, times, is_last] =
                [state[0], state[1], state[2], state[3], state[4], state[5], state[6]];
            let skipped = skipping.select(shifted(beta, -2, NEVER), NEVER);
            let next = log_sum(beta, shifted(beta, -1, NEVER), skipped);
            let begins = times.eq(time + 1);
            let next = begins.select(is_last.select(next.splat_like(0), NEVER), next) + at_time(emissions, time);
            vec![time - 1, next, with_time(all, time, next), emissions, skipping, times, is_last]
        },
    );
    state[2]
}

fn forward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("log_probs")?.dtype;
    let problem = Problem::of(cx)?;
    let alphas = alphas(&problem);
    // The two last states at the last time of each sample.
    let time = cx.b().iota(DType::I32, &alphas.dims(), 0);
    let ends = time.eq(problem.times - 1) & problem.is_last();
    let likelihood = crate::common::reductions::log_sum_exp(ends.select(alphas, NEVER), &[0, 2]);
    // Without predictions, the loss is zero if there are no labels.
    let trivial = (problem.times.eq(0) & problem.states.eq(1)).squeeze(1);
    let loss = trivial.select(likelihood.splat_like(0), -likelihood);
    Ok(vec![loss.convert(dtype), cx.resized(1, alphas.transpose(&[1, 0, 2]).convert(dtype))])
}

fn backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let problem = Problem::of(cx)?;
    let (wide, given) = (problem.emissions.dtype(), cx.tensor("log_probs")?);
    let log_probs = given.without_extents();
    let dims = log_probs.dims();
    let loss = cx.tensor("neg_log_likelihood")?.convert(wide).unsqueeze(1);
    let alphas = cx.tensor("log_alpha")?.without_extents().convert(wide).transpose(&[1, 0, 2]);
    // A capacity may be even.
    let alphas = alphas.pad_axis(2, NEVER, 0, problem.classes.dim(1) - alphas.dim(2));
    // The log probability of each state at each time, given the labels. Both factors contain the emission, so it is
    // subtracted once.
    let joint = alphas + betas(&problem) - problem.emissions + loss;
    let time = cx.b().iota(DType::I32, &joint.dims(), 0);
    let possible = time.lt(problem.times) & problem.state().lt(problem.states);
    let posterior = (possible & problem.emissions.gt(NEVER)).select(joint.exp(), 0);
    // Adds the states of each class by a product with the 0-1 matrix of states and classes.
    let class = cx.b().iota(DType::I32, &[dims[1], problem.classes.dim(1), dims[2]], 2);
    let membership = class.eq(problem.classes.unsqueeze(2)).convert(wide);
    let by_class = DotDims { lhs_batch: vec![1], rhs_batch: vec![0], lhs_contract: vec![2], rhs_contract: vec![1] };
    let expected = posterior.dot_general(membership, &by_class, wide).transpose(&[1, 0, 2]);
    let grad = cx.tensor("grad")?.convert(wide).unsqueeze(1);
    let gradient = (log_probs.convert(wide).exp() - expected) * grad;
    let zeroed = match cx.bool("zero_infinity")? {
        true => loss.eq(f64::INFINITY),
        false => loss.ne(loss) & false,
    };
    let counts = cx.b().iota(DType::I32, &dims, 0).lt(problem.times) & !zeroed;
    Ok(counts.select(gradient, 0).convert(log_probs.dtype()).with_extents(given.extents()))
}
