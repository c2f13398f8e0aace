//! torchaudio's loss of recurrent transducers, a C++ kernel without a decomposition: the likelihood of a sequence of
//! labels over all its alignments with a longer sequence of predictions (Graves, 2012).
//!
//! A state is a pair of a time t and a number of labels u. A blank leads to the next time, and a label to the next
//! number. All states of one sum t + u, a diagonal, follow from those of the diagonal before, so the loops run over
//! diagonals.
//!
//! ```text
//! logits [batch, t, u, class]   targets [batch, label]   logit_lengths, target_lengths [batch]
//! ```

use stablehlo::{DType, Value};

use crate::check::Check;
use crate::common::reductions::{log_add_exp, log_sum_exp};
use crate::cx::Cx;
use crate::error::{Error, Result, require};
use crate::ops::nn::ctc::{at_time, with_time};
use crate::places::take_along;
use crate::row::{Row, many};

pub(crate) const ROWS: &[Row] =
    &[many(&["torchaudio::rnnt_loss_forward"], loss_and_gradient).bounded().bounds_results()];

const NEVER: f64 = f64::NEG_INFINITY;

struct Problem<'b> {
    /// The logits with the valid elements first, in the type of the arithmetic.
    logits: Value<'b>,
    /// The class of the blank: 0-d (int32).
    blank: Value<'b>,
    /// The label that leads from each state to the next number of labels: [batch, 1, u, 1] (int32).
    labels: Value<'b>,
    /// Whether the state exists, and whether it is the last one: [batch, t, u].
    exists: Value<'b>,
    is_last: Value<'b>,
    /// Whether a label leads from the state: [batch, t, u].
    has_label: Value<'b>,
    /// The number of diagonals: 0-d (int32).
    end: Value<'b>,
}

impl<'b> Problem<'b> {
    fn of(cx: &Cx<'b>) -> Result<Problem<'b>> {
        let (logits, targets) = (cx.tensor("logits")?, cx.tensor("targets")?);
        let (times, labels) = (cx.tensor("logit_lengths")?, cx.tensor("target_lengths")?);
        check_arguments(cx, logits, targets, [times, labels])?;
        for (value, axes) in [(logits, &[0, 3][..]), (targets, &[0]), (times, &[0]), (labels, &[0])] {
            value.require_whole(axes, "the batch or the classes of rnnt_loss");
        }
        for (value, axis) in [(logits, 1), (logits, 2), (targets, 1)] {
            value.require_prefix(axis, "the times or the labels of rnnt_loss in merged dimensions");
        }
        let (count, states) = (targets.size(1, DType::I32), logits.size(2, DType::I32));
        cx.check_longest(times, logits.size(1, DType::I32), Error::runtime("input length mismatch"));
        cx.check_longest(labels + 1, states, Error::runtime("output length mismatch"));
        cx.check_that((count + 1).eq(states), count, Error::runtime("target length mismatch"));

        let b = cx.b();
        let logits = logits.without_extents().convert(logits.dtype().opmath());
        let targets = targets.without_extents();
        let states = &logits.dims()[..3];
        let numbers = |axis| b.iota(DType::I32, states, axis);
        let per_sample = |lengths: Value<'b>| lengths.reshape(&[states[0], 1, 1]);
        let (times, labels) = (per_sample(times), per_sample(labels));
        let exists = numbers(1).lt(times) & numbers(2).le(labels);
        let is_used = b.iota(DType::I32, &targets.dims(), 1).lt(labels.squeeze(2));
        let used = is_used.select(targets, 0);
        cx.check_from_to(
            used,
            0,
            logits.dim(3) - 1,
            Error::index(format!("Target {} is out of bounds.", Check::NUMBER)),
        );
        Ok(Problem {
            blank: cx.scalar("blank", DType::I32)?,
            labels: used.pad_axis(1, 0, 0, states[2] - targets.dim(1)).unsqueeze(1).unsqueeze(3),
            exists,
            is_last: numbers(1).eq(times - 1) & numbers(2).eq(labels),
            has_label: exists & numbers(2).lt(labels),
            end: (times + labels).reduce_max(&[0, 1, 2]),
            logits,
        })
    }

    /// The log probabilities of a blank and of the next label in each state, `NEVER` where there is none.
    fn steps(&self, log_probs: Value<'b>) -> [Value<'b>; 2] {
        let dims = [&self.exists.dims()[..], &[1]].concat();
        let of = |classes: Value<'b>| take_along(log_probs, 3, classes.broadcast_to(&dims)).squeeze(3);
        [self.exists.select(of(self.blank), NEVER), self.has_label.select(of(self.labels), NEVER)]
    }
}

/// Refuses what torchaudio's kernels refuse.
fn check_arguments<'b>(cx: &Cx<'b>, logits: Value<'b>, targets: Value<'b>, lengths: [Value<'b>; 2]) -> Result<()> {
    require(matches!(logits.dtype(), DType::F32 | DType::F16), "logits must be float32 or float16 (half) type")?;
    require(targets.dtype() == DType::I32, "targets must be int32 type")?;
    require(logits.rank() == 4, "logits must be 4-D (batch, time, target, class)")?;
    require(targets.rank() == 2, "targets must be 2-D (batch, max target length)")?;
    let batch = logits.dim(0);
    for (lengths, name) in lengths.into_iter().zip(["logit_lengths", "target_lengths"]) {
        require(lengths.dtype() == DType::I32, &format!("{name} must be int32 type"))?;
        require(lengths.rank() == 1, &format!("{name} must be 1-D"))?;
        require(lengths.dim(0) == batch, &format!("batch dimension mismatch between logits and {name}"))?;
    }
    require(targets.dim(0) == batch, "batch dimension mismatch between logits and targets")?;
    let blank = cx.int("blank")?;
    require(blank >= 0 && blank < logits.dim(3), "blank must be within [0, logits.shape[-1])")?;
    require(logits.numel() > 0, "logits must have elements")
}

/// A [batch, t, u] value by diagonals, [diagonal, batch, u]. States that a diagonal does not have are `NEVER`.
fn by_diagonal(x: Value<'_>) -> Value<'_> {
    let (batch, times, labels) = (x.dim(0), x.dim(1), x.dim(2));
    let diagonals = times + labels - 1;
    // In rows of one element more, each row starts one element later.
    let rows = x.transpose(&[0, 2, 1]).pad_axis(2, NEVER, 0, labels).reshape(&[batch, labels * (diagonals + 1)]);
    rows.slice_axis(1, 0, labels * diagonals).reshape(&[batch, labels, diagonals]).transpose(&[2, 0, 1])
}

/// The [batch, t, u] value whose diagonals are given.
fn from_diagonals(x: Value<'_>) -> Value<'_> {
    let (diagonals, batch, labels) = (x.dim(0), x.dim(1), x.dim(2));
    let rows = x.transpose(&[1, 2, 0]).reshape(&[batch, labels * diagonals]).pad_axis(1, NEVER, 0, labels);
    let rows = rows.reshape(&[batch, labels, diagonals + 1]).slice_axis(2, 0, diagonals + 1 - labels);
    rows.transpose(&[0, 2, 1])
}

/// For each state, the log probability of reaching it: [diagonal, batch, u].
fn alphas<'b>(problem: &Problem<'b>, [blanks, labels]: [Value<'b>; 2]) -> Value<'b> {
    let b = blanks.builder();
    let dims = blanks.dims();
    let first = b.iota(DType::I32, &dims[1..], 1).eq(0).select(b.splat(0, blanks.dtype(), &dims[1..]), NEVER);
    let all = first.unsqueeze(0).pad_axis(0, NEVER, 0, dims[0] - 1);
    let state = [b.scalar(1, DType::I32), first, all, blanks, labels, problem.end];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(state[5]),
        |state| {
            let (place, alpha, before) = (state[0], state[1], state[0] - 1);
            let by_label = (alpha + at_time(state[4], before)).pad_axis(1, NEVER, 1, -1);
            let next = log_add_exp(alpha + at_time(state[3], before), by_label, 1.0);
            vec![place + 1, next, with_time(state[2], place, next), state[3], state[4], state[5]]
        },
    );
    state[2]
}

/// For each state, the log probability of the rest of the alignment: [diagonal, batch, u].
fn betas<'b>(problem: &Problem<'b>, [blanks, labels]: [Value<'b>; 2]) -> Value<'b> {
    let b = blanks.builder();
    let none = b.splat(NEVER, blanks.dtype(), &blanks.dims()[1..]);
    let all = b.splat(NEVER, blanks.dtype(), &blanks.dims());
    let ends = by_diagonal(problem.is_last.select(b.splat(0, blanks.dtype(), &problem.is_last.dims()), NEVER));
    let state = [problem.end - 1, none, all, blanks, labels, ends];
    let state = b.while_loop(
        &state,
        |state| state[0].ge(0),
        |state| {
            let (place, beta) = (state[0], state[1]);
            let after_blank = at_time(state[5], place).max(beta);
            let by_label = at_time(state[4], place) + beta.pad_axis(1, NEVER, -1, 1);
            let next = log_add_exp(at_time(state[3], place) + after_blank, by_label, 1.0);
            vec![place - 1, next, with_time(state[2], place, next), state[3], state[4], state[5]]
        },
    );
    state[2]
}

/// The loss of each sample, and the gradient of their sum.
fn loss_and_gradient<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let given = cx.tensor("logits")?;
    let problem = Problem::of(cx)?;
    let has_logits = cx.bool("fused_log_softmax")?;
    let log_probs = match has_logits {
        true => problem.logits - log_sum_exp(problem.logits, &[3]).unsqueeze(3),
        false => problem.logits,
    };
    let [blanks, labels] = problem.steps(log_probs);
    let diagonals = [by_diagonal(blanks), by_diagonal(labels)];
    let (alphas, betas) = (from_diagonals(alphas(&problem, diagonals)), from_diagonals(betas(&problem, diagonals)));
    let likelihood = betas.slice(&[0; 3], &[betas.dim(0), 1, 1], &[1; 3]);

    // The log probability of what follows each of the two steps.
    let after_blank = problem.is_last.select(betas.splat_like(0), betas.pad_axis(1, NEVER, -1, 1));
    let after_label = betas.pad_axis(2, NEVER, -1, 1);
    let chance = |exists: Value<'b>, step: Value<'b>, after: Value<'b>| {
        exists.select((alphas + step + after - likelihood).exp(), 0).unsqueeze(3)
    };
    let (blank, label) = (chance(problem.exists, blanks, after_blank), chance(problem.has_label, labels, after_label));
    let class = cx.b().iota(DType::I32, &problem.logits.dims(), 3);
    let steps = class.eq(problem.blank).select(blank, 0) + class.eq(problem.labels).select(label, 0);
    let gradient = if has_logits { log_probs.exp() * (blank + label) - steps } else { -steps };
    let gradient = problem.exists.unsqueeze(3).select(gradient, 0);
    let limit = cx.scalar("clamp", gradient.dtype())?;
    let gradient = limit.gt(0).select(gradient.max(-limit).min(limit), gradient);
    let loss = -likelihood.reshape(&[likelihood.numel()]);
    Ok(vec![loss.convert(given.dtype()), gradient.convert(given.dtype()).with_extents(given.extents())])
}
