//! Torchvision's operators for object detection. They are C++ kernels without decompositions.

use stablehlo::{DType, DotDims, Precision, Value};

use crate::common::chosen::Chosen;
use crate::common::sorting::sorted;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["torchvision::nms"], nms),
    one(&["torchvision::roi_align"], |cx| {
        let input = cx.tensor("input")?;
        let sampling = Sampling::of(cx, &input.dims(), input.dtype())?;
        let pooled = cx.b().with_precision(Precision::Highest, || sampling.pool(input.convert(sampling.dtype())));
        Ok(pooled.convert(input.dtype()))
    }),
    one(&["torchvision::_roi_align_backward"], |cx| {
        let grad = cx.tensor("grad")?;
        let dims = [cx.int("batch_size")?, cx.int("channels")?, cx.int("height")?, cx.int("width")?];
        let sampling = Sampling::of(cx, &dims, grad.dtype())?;
        let spread = cx.b().with_precision(Precision::Highest, || sampling.spread(grad.convert(sampling.dtype())));
        Ok(spread.convert(grad.dtype()))
    }),
];

// ---- non-maximum suppression -----------------------------------------------------------------------------

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
    let (_, order) = sorted(scores, 0, true);
    let boxes = Places::slices(&boxes.dims(), 0, order).read(boxes.convert(cx.float_dtype(boxes.dtype()).opmath()));
    let [left, top, right, bottom] = [0, 1, 2, 3].map(|side| boxes.select_axis(1, side));
    // The threshold is a double. In float32, a quotient could round to it.
    let threshold = cx.scalar("iou_threshold", DType::F64)?;
    let state = [
        b.scalar(0, DType::I64),
        b.splat(false, DType::Bool, &[count]),
        left,
        top,
        right,
        bottom,
        (right - left) * (bottom - top),
        threshold,
    ];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(count),
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

// ---- regions of interest ---------------------------------------------------------------------------------

/// The weights of feature positions for the bins of regions. Let r = region, p = bin row, q = bin column, b = image,
/// c = channel, h = row, w = column. Bilinear samples on a grid are separable, so pooling is two matrix products:
///
/// ```text
/// pool:      rows [r, p, b, h] features [b, c, h, w] -> [r, p, c, w];  [r, p, c, w] columns [r, q, w] -> [r, c, p, q]
/// gradient:  the transposed products, in reverse order
/// ```
///
/// A feature that is not finite affects all regions of its channel.
struct Sampling<'b> {
    /// Rows: [r, p, b, h]. Columns: [r, q, w].
    rows: Value<'b>,
    columns: Value<'b>,
    /// The number of samples of each bin, for each region.
    samples: Value<'b>,
}

impl<'b> Sampling<'b> {
    /// From features of dimensions [images, channels, height, width].
    fn of(cx: &Cx<'b>, dims: &[i64], dtype: DType) -> Result<Sampling<'b>> {
        let (b, dtype) = (cx.b(), cx.float_dtype(dtype).opmath());
        let rois = cx.tensor("rois")?;
        let count = rois.dim(0);
        let image = rois.select_axis(1, 0).convert(DType::I32);
        let is_image = image.unsqueeze(1).eq(b.iota(DType::I32, &[count, dims[0]], 1)).convert(dtype);
        let rois = rois.convert(dtype);
        let scale = cx.scalar("spatial_scale", dtype)?;
        let is_aligned = cx.bool("aligned")?;
        let fixed = cx.int("sampling_ratio")?;
        let along = |low: i64, bins: i64, size: i64| {
            let at = |side: i64| rois.select_axis(1, side) * scale - if is_aligned { 0.5 } else { 0.0 };
            let (start, length) = (at(low), at(low + 2) - at(low));
            let length = if is_aligned { length } else { length.max(1) };
            let samples = if fixed > 0 { length.splat_like(fixed) } else { (length / bins).ceil() };
            (weights(start, length / bins, samples, bins, size), samples)
        };
        let (columns, across) = along(1, cx.int("pooled_width")?, dims[3]);
        let (rows, down) = along(2, cx.int("pooled_height")?, dims[2]);
        let rows = rows.unsqueeze(2) * is_image.unsqueeze(1).unsqueeze(3);
        Ok(Sampling { rows, columns, samples: (down * across).max(1) })
    }

    fn dtype(&self) -> DType {
        self.columns.dtype()
    }

    /// Features to regions × channels × bins.
    fn pool(&self, features: Value<'b>) -> Value<'b> {
        let over_rows = DotDims { lhs_contract: vec![2, 3], rhs_contract: vec![0, 2], ..DotDims::default() };
        let rows = self.rows.dot_general(features, &over_rows, self.dtype());
        let pooled = rows.dot_general(self.columns, &each_region(3, 2), self.dtype()).transpose(&[0, 2, 1, 3]);
        pooled / self.samples_of_each()
    }

    /// The gradient of the features from the gradient of the regions.
    fn spread(&self, grad: Value<'b>) -> Value<'b> {
        let grad = grad / self.samples_of_each();
        let rows = grad.dot_general(self.columns, &each_region(3, 1), self.dtype());
        let over_bins = DotDims { lhs_contract: vec![0, 1], rhs_contract: vec![0, 2], ..DotDims::default() };
        self.rows.dot_general(rows, &over_bins, self.dtype()).transpose(&[0, 2, 1, 3])
    }

    fn samples_of_each(&self) -> Value<'b> {
        self.samples.reshape(&[self.samples.numel(), 1, 1, 1])
    }
}

/// A batched matrix product, with the region as the batch.
fn each_region(lhs: usize, rhs: usize) -> DotDims {
    DotDims { lhs_batch: vec![0], rhs_batch: vec![0], lhs_contract: vec![lhs], rhs_contract: vec![rhs] }
}

/// Regions × bins × positions: the total weight of each position for the samples of a bin. `start`, the bins'
/// `length` and the number of `samples` are given for each region; `samples` depends on the data.
fn weights<'b>(start: Value<'b>, length: Value<'b>, samples: Value<'b>, bins: i64, size: i64) -> Value<'b> {
    let (b, dtype, count) = (start.builder(), start.dtype(), start.dim(0));
    let dims = [count, bins, size];
    let most = samples.reduce_max(&[0]);
    let start = start.unsqueeze(1) + length.unsqueeze(1) * b.iota(dtype, &[count, bins], 1);
    let state = [b.scalar(0, dtype), b.splat(0, dtype, &dims), start, length / samples, samples, most];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(state[5]),
        |state| {
            let sample = state[0];
            let at = state[2] + state[3].unsqueeze(1) * (sample + 0.5);
            let is_within =
                at.ge(-1).and(at.le(size)).and(state[4].unsqueeze(1).gt(sample).broadcast_to(&[count, bins]));
            let distance = (at.clamp(0, size - 1).unsqueeze(2) - b.iota(dtype, &dims, 2)).abs();
            let near = is_within.unsqueeze(2).broadcast_to(&dims).select((-distance + 1).max(0), 0);
            [&[sample + 1, state[1] + near], &state[2..]].concat()
        },
    );
    state[1]
}
