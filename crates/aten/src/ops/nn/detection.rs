//! torchvision's non-maximum suppression, a C++ kernel without a decomposition.

use stablehlo::{DType, Value};

use crate::common::chosen::Chosen;
use crate::common::sorting::sorted;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[one(&["torchvision::nms"], nms).bounded()];

/// Keeps, in order of decreasing score, each box whose overlap with every better kept box is at most the threshold.
/// The loop is sequential, because each decision depends on all earlier ones.
fn nms<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (boxes, scores) = (cx.tensor("dets")?, cx.tensor("scores")?);
    if boxes.rank() != 2 {
        return Err(Error::runtime(format!("boxes should be a 2d tensor, got {}D", boxes.rank())));
    }
    if boxes.dim(1) != 4 {
        return Err(Error::runtime(format!("boxes should have 4 elements in dimension 1, got {}", boxes.dim(1))));
    }
    if scores.rank() != 1 {
        return Err(Error::runtime(format!("scores should be a 1d tensor, got {}D", scores.rank())));
    }
    if boxes.dim(0) != scores.dim(0) {
        return Err(Error::runtime(format!(
            "boxes and scores should have same number of elements in dimension 0, got {} and {}",
            boxes.dim(0),
            scores.dim(0)
        )));
    }
    let (b, count) = (cx.b(), boxes.dim(0));
    if count == 0 {
        return Ok(b.splat(0, DType::I64, &[0]));
    }
    // Padding comes last, and counts as boxes that are gone.
    let number = scores.size(0, DType::I64);
    let (_, order) = sorted(scores, 0, true);
    let order = order.without_extents();
    let boxes = Places::slices(&boxes.dims(), 0, order).read(boxes.convert(cx.float_dtype(boxes.dtype()).opmath()));
    let [left, top, right, bottom] = [0, 1, 2, 3].map(|side| boxes.select_axis(1, side));
    // The threshold is a double. In float32, a quotient could round to it.
    let threshold = cx.scalar("iou_threshold", DType::F64)?;
    let state = [
        b.scalar(0, DType::I64),
        b.iota(DType::I64, &[count], 0).ge(number),
        left,
        top,
        right,
        bottom,
        (right - left) * (bottom - top),
        threshold,
        number,
    ];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(state[8]),
        |state| {
            let (place, gone) = (state[0], state[1]);
            let at = |values: Value<'b>| values.dynamic_slice(&[place], &[1]).broadcast_to(&[count]);
            let shared = |low: Value<'b>, high: Value<'b>| (at(high).min(high) - at(low).max(low)).max(0);
            let intersection = shared(state[2], state[4]) * shared(state[3], state[5]);
            let overlap = intersection / (at(state[6]) + state[6] - intersection);
            let is_worse = b.iota(DType::I64, &[count], 0).gt(place);
            let goes = !at(gone) & is_worse & overlap.convert(DType::F64).gt(state[7]);
            [&[place + 1, gone | goes], &state[2..]].concat()
        },
    );
    let chosen = Chosen::new(!state[1]);
    cx.set_count(0, chosen.count);
    Ok(chosen.pack(order, order))
}
