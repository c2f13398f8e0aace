//! torchaudio's alignment of labels with a sequence of predictions, a C++ kernel without a decomposition: the best path
//! through the states of connectionist temporal classification (`ctc.rs`), by Viterbi's algorithm.
//!
//! L labels give 2 · L + 1 states: a blank before, between and after the labels.

use stablehlo::{DType, Value};

use crate::check::Check;
use crate::cx::Cx;
use crate::error::{Error, Result, require};
use crate::places::{take_along, take_flat};
use crate::row::{Row, many};

pub(crate) const ROWS: &[Row] = &[many(&["torchaudio::forced_align"], align).bounded().bounds_results()];

const NEVER: f64 = f64::NEG_INFINITY;

/// The class of the best path at each time, and the log probabilities.
fn align<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (log_probs, targets) = (cx.tensor("log_probs")?, cx.tensor("targets")?);
    check_arguments(cx, log_probs, targets)?;
    for (value, axes) in [(log_probs, &[0, 2][..]), (targets, &[0])] {
        value.require_whole(axes, "the batch or the classes of forced_align");
        value.require_prefix(1, "the times or the labels of forced_align in merged dimensions");
    }
    let b = cx.b();
    let (times, labels) = (log_probs.size(1, DType::I32), targets.size(1, DType::I32));
    for (lengths, size, message) in
        [("input_lengths", times, "input length mismatch"), ("target_lengths", labels, "target length mismatch")]
    {
        cx.check_longest(cx.tensor(lengths)?, size, Error::runtime(message));
    }
    let given = targets.without_extents().reshape(&[targets.dim(1)]);
    check_fits(cx, given, times, labels);

    // The class of each state. Those behind the last label's blank do not exist.
    let (blank, states) = (cx.scalar("blank", targets.dtype())?, 2 * targets.dim(1) + 1);
    let state = b.iota(DType::I32, &[states], 0);
    let is_label = (state & 1).ne(0);
    let spread = given.pad(0, &[1], &[1], &[1]);
    let classes = is_label.select(spread, blank);
    let exists = state.le(labels * 2);
    let before = classes.pad_axis(0, -1, 2, -2);
    let can_skip = is_label & classes.ne(before) & state.gt(1);

    let wide = log_probs.dtype().opmath();
    let emissions = log_probs.without_extents().convert(wide).squeeze(0);
    let emissions = take_along(emissions, 1, classes.unsqueeze(0).broadcast_to(&[log_probs.dim(1), states]));
    let emissions = exists.unsqueeze(0).select(emissions, NEVER);
    let (best, moves) = forward(emissions, can_skip, times);

    // The path ends in the last label or in the blank behind it.
    let at = |place: Value<'b>| best.dynamic_slice(&[place], &[1]).reshape(&[]);
    let last = labels * 2;
    let label = (last - 1).max(0);
    let end = at(last).gt(at(label)).select(last, label);
    let path = back(moves, end, times);
    let path = take_flat(classes, path).unsqueeze(0).with_extents(vec![targets.extent(0), log_probs.extent(1)]);
    Ok(vec![path, log_probs])
}

/// Refuses what torchaudio's kernels refuse.
fn check_arguments<'b>(cx: &Cx<'b>, log_probs: Value<'b>, targets: Value<'b>) -> Result<()> {
    let is_taken = matches!(log_probs.dtype(), DType::F16 | DType::F32 | DType::F64);
    require(is_taken, "log_probs must be float64, float32 or float16 (half) type")?;
    require(matches!(targets.dtype(), DType::I32 | DType::I64), "targets must be int32 or int64 type")?;
    require(log_probs.rank() == 3, "log_probs must be 3-D (batch_size, input length, num classes)")?;
    require(targets.rank() == 2, "targets must be 2-D (batch_size, target length,)")?;
    for lengths in ["input_lengths", "target_lengths"] {
        require(cx.tensor(lengths)?.rank() == 1, &format!("{lengths} must be 1-D (batch_size,)"))?;
    }
    for (value, name) in [(log_probs, "log_probs"), (targets, "targets")] {
        let message = format!("The batch dimension for {name} must be 1 at the current version.");
        require(value.dim(0) == 1, &message)?;
    }
    let blank = cx.int("blank")?;
    require(blank >= 0 && blank < log_probs.dim(2), "blank must be within [0, num classes)")?;
    require(log_probs.dim(1) > 0, "log_probs must have elements")
}

/// Checks that each label is a class, and that there is a time for each label and for the blank between equal ones.
fn check_fits<'b>(cx: &Cx<'b>, targets: Value<'b>, times: Value<'b>, labels: Value<'b>) {
    if targets.numel() == 0 {
        return;
    }
    let place = cx.b().iota(DType::I32, &targets.dims(), 0);
    let exists = place.lt(labels);
    let classes = cx.ty("log_probs").map_or(0, |ty| ty.dims[2]);
    let error = Error::index(format!("Target {} is out of bounds.", Check::NUMBER));
    cx.check_from_to(exists.select(targets, 0), 0, classes - 1, error);
    let repeats = exists & place.gt(0) & targets.eq(targets.pad_axis(0, 0, 1, -1));
    let repeats = repeats.convert(DType::I32).reduce_sum(&[0]);
    let (high, low) = (Check::HIGH, Check::LOW);
    let error = format!(
        "targets length is too long for CTC. Found log_probs length: {high}, targets length and number of repeats: {low}"
    );
    let needed = labels + repeats;
    let shown = times.convert(DType::I64) * (1_i64 << 32) + needed.convert(DType::I64);
    cx.check_that(times.ge(needed), shown, Error::runtime(error));
}

/// For each state, the log probability of the best path to it at the last time, and for each time and state the number
/// of states that the best path to it goes on by: [state], [time, state] (int32).
fn forward<'b>(emissions: Value<'b>, can_skip: Value<'b>, times: Value<'b>) -> (Value<'b>, Value<'b>) {
    let b = emissions.builder();
    let dims = emissions.dims();
    let first = b.iota(DType::I32, &dims[1..], 0).lt(2).select(emissions.select_axis(0, 0), NEVER);
    let state = [b.scalar(1, DType::I32), first, b.splat(0, DType::I32, &dims), emissions, can_skip, times];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(state[5]),
        |state| {
            let [time, stays, moves, emissions, can_skip, times] =
                [state[0], state[1], state[2], state[3], state[4], state[5]];
            let goes = stays.pad_axis(0, NEVER, 1, -1);
            let skips = can_skip.select(stays.pad_axis(0, NEVER, 2, -2), NEVER);
            // Where paths are equally good, the path that stays comes first, then the path that skips no state.
            let is_skip = skips.gt(goes) & skips.gt(stays);
            let is_step = !is_skip & goes.gt(stays);
            let best = is_skip.select(skips, is_step.select(goes, stays));
            let by = is_skip.convert(DType::I32) * 2 + is_step.convert(DType::I32);
            let emission = emissions.dynamic_slice(&[time, time.splat_like(0)], &[1, dims[1]]).squeeze(0);
            let moves = moves.dynamic_update_slice(by.unsqueeze(0), &[time, time.splat_like(0)]);
            vec![time + 1, best + emission, moves, emissions, can_skip, times]
        },
    );
    (state[1], state[2])
}

/// The state at each time of the path that ends in a state: [time] (int32).
fn back<'b>(moves: Value<'b>, end: Value<'b>, times: Value<'b>) -> Value<'b> {
    let b = moves.builder();
    let path = b.splat(0, DType::I32, &[moves.dim(0)]);
    let state = b.while_loop(
        &[times - 1, end, path, moves],
        |state| state[0].ge(0),
        |state| {
            let [time, place, path, moves] = [state[0], state[1], state[2], state[3]];
            let path = path.dynamic_update_slice(place.reshape(&[1]), &[time]);
            let by = moves.dynamic_slice(&[time, place], &[1, 1]).reshape(&[]);
            vec![time - 1, place - by, path, moves]
        },
    );
    state[2]
}
