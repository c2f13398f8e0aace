//! torchvision's pooling of regions of interest, C++ kernels without decompositions. A position-sensitive form has a
//! channel of its own for each bin (Dai et al., 2016).

use stablehlo::{DType, DotDims, Precision, Value};

use super::sampled_regions::{self, Bins, of_bin};
use crate::common::reductions::extreme_with_position;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{Combine, Places, take_along};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["torchvision::roi_align"], |cx| {
        let input = cx.tensor("input")?;
        if cx.int("sampling_ratio")? > 0 {
            return sampled_regions::pooled(cx);
        }
        pooled(cx, input, &Pooling::of(cx, &input.dims(), input.dtype(), cx.bool("aligned")?)?, Pooling::pool)
    })
    .bounded(),
    one(&["torchvision::_roi_align_backward"], |cx| {
        if cx.int("sampling_ratio")? > 0 {
            return sampled_regions::spread(cx);
        }
        let grad = cx.tensor("grad")?;
        pooled(cx, grad, &Pooling::of(cx, &features(cx)?, grad.dtype(), cx.bool("aligned")?)?, Pooling::spread)
    })
    .bounded(),
    many(&["torchvision::ps_roi_align"], |cx| {
        let input = cx.tensor("input")?;
        position_sensitive(cx, &Pooling::of(cx, &input.dims(), input.dtype(), true)?)
    }),
    one(&["torchvision::_ps_roi_align_backward"], |cx| {
        let pooling = Pooling::of(cx, &features(cx)?, cx.tensor("grad")?.dtype(), true)?;
        pooled(cx, cx.tensor("grad")?, &pooling, Pooling::spread_by_bin)
    }),
    // The kernels leave the last row and column out of the result, but not out of the gradient.
    many(&["torchvision::ps_roi_pool"], |cx| {
        let input = cx.tensor("input")?;
        position_sensitive(cx, &Pooling::of_bins(cx, &input.dims(), input.dtype(), 1)?)
    }),
    one(&["torchvision::_ps_roi_pool_backward"], |cx| {
        let pooling = Pooling::of_bins(cx, &features(cx)?, cx.tensor("grad")?.dtype(), 0)?;
        pooled(cx, cx.tensor("grad")?, &pooling, Pooling::spread_by_bin)
    }),
    many(&["torchvision::roi_pool"], largest_of_regions),
    one(&["torchvision::_roi_pool_backward"], |cx| {
        let (grad, place, dims) = (cx.tensor("grad")?, cx.tensor("argmax")?.convert(DType::I32), features(cx)?);
        let plane = dims[2] * dims[3];
        let image = cx.tensor("rois")?.select_axis(1, 0).convert(DType::I32).reshape(&[grad.dim(0), 1, 1, 1]);
        let channel = cx.b().iota(DType::I32, &grad.dims(), 1);
        let is_some = place.ge(0);
        let index = (image.broadcast_to(&grad.dims()) * dims[1] + channel) * plane + place.max(0);
        let share = is_some.select(grad, 0).flatten().convert(grad.dtype().opmath());
        let zeros = cx.b().splat(0, share.dtype(), &[dims.iter().product()]);
        let sums = Places::slices(&zeros.dims(), 0, index.flatten()).write(zeros, share, Combine::Add);
        Ok(sums.reshape(&dims).convert(grad.dtype()))
    }),
];

/// The sizes of the features that a gradient is of.
fn features(cx: &Cx<'_>) -> Result<[i64; 4]> {
    Ok([cx.int("batch_size")?, cx.int("channels")?, cx.int("height")?, cx.int("width")?])
}

fn pooled<'b>(
    cx: &Cx<'b>,
    x: Value<'b>,
    pooling: &Pooling<'b>,
    pool: fn(&Pooling<'b>, Value<'b>) -> Value<'b>,
) -> Result<Value<'b>> {
    let result = cx.b().with_precision(Precision::Highest, || pool(pooling, x.convert(pooling.dtype())));
    Ok(result.convert(x.dtype()))
}

/// The pooled features, and the channel that each bin read.
fn position_sensitive<'b>(cx: &Cx<'b>, pooling: &Pooling<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    let (down, across) = (pooling.rows.dim(1), pooling.columns.dim(1));
    if down * across == 0 || input.dim(1) % (down * across) != 0 {
        return Err(Error::runtime("input channels must be a multiple of pooling height * pooling width"));
    }
    let result = pooled(cx, input, pooling, Pooling::pool_by_bin)?;
    let bins = result.dims()[1..].to_vec();
    let channel = cx.b().iota(DType::I32, &[bins.iter().product()], 0).reshape(&bins).unsqueeze(0);
    Ok(vec![result, channel.broadcast_to(&result.dims())])
}

/// The weights of feature positions for the bins of regions. Let r = region, p = bin row, q = bin column, b = image,
/// c = channel, h = row, w = column. Bilinear samples on a grid are separable, so pooling is two matrix products:
///
/// ```text
/// pool:      rows [r, p, b, h] features [b, c, h, w] -> [r, p, c, w];  [r, p, c, w] columns [r, q, w] -> [r, c, p, q]
/// gradient:  the transposed products, in reverse order
/// ```
///
/// A feature that is not finite affects all regions of its channel.
struct Pooling<'b> {
    /// Rows: [r, p, b, h]. Columns: [r, q, w].
    rows: Value<'b>,
    columns: Value<'b>,
    /// The number of samples of each bin, for each region.
    samples: Value<'b>,
}

impl<'b> Pooling<'b> {
    /// From features of dimensions [images, channels, height, width].
    fn of(cx: &Cx<'b>, dims: &[i64], dtype: DType, is_aligned: bool) -> Result<Pooling<'b>> {
        let bins = Bins::of(cx, dtype, is_aligned)?;
        let fixed = cx.int("sampling_ratio")?;
        let along = |bins: &Bins<'b>, size: i64| {
            let samples = if fixed > 0 { bins.length.splat_like(fixed) } else { bins.length.ceil() };
            (weights(bins, samples, size), samples)
        };
        let (columns, across) = along(&bins[1], dims[3]);
        let (rows, down) = along(&bins[0], dims[2]);
        let rows = rows_of_images(rows, cx.tensor("rois")?, dims[0]);
        Ok(Pooling { rows, columns, samples: (down * across).max(1) })
    }

    /// Bins of whole positions, each with the same weight. The last `left_out` positions are in no bin.
    fn of_bins(cx: &Cx<'b>, dims: &[i64], dtype: DType, left_out: i64) -> Result<Pooling<'b>> {
        let dtype = cx.float_dtype(dtype).opmath();
        let weights = |bins: Value<'b>| {
            let bins = bins.convert(dtype);
            bins / bins.reduce_sum(&[2]).max(1).unsqueeze(2)
        };
        let columns = weights(whole_bins(cx, 1, [dims[3], dims[3] - left_out], dtype, false)?);
        let rows = weights(whole_bins(cx, 2, [dims[2], dims[2] - left_out], dtype, false)?);
        let samples = cx.b().splat(1, dtype, &[columns.dim(0)]);
        Ok(Pooling { rows: rows_of_images(rows, cx.tensor("rois")?, dims[0]), columns, samples })
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

    /// Features of a channel for each bin to regions × channels × bins.
    fn pool_by_bin(&self, features: Value<'b>) -> Value<'b> {
        let (dims, down, across) = (features.dims(), self.rows.dim(1), self.columns.dim(1));
        let split = features.reshape(&[dims[0], dims[1] / (down * across), down, across, dims[2], dims[3]]);
        let over_rows =
            DotDims { lhs_batch: vec![1], rhs_batch: vec![2], lhs_contract: vec![2, 3], rhs_contract: vec![0, 4] };
        let rows = self.rows.dot_general(split, &over_rows, self.dtype());
        let over_columns =
            DotDims { lhs_batch: vec![1, 3], rhs_batch: vec![0, 1], lhs_contract: vec![4], rhs_contract: vec![2] };
        let pooled = rows.dot_general(self.columns, &over_columns, self.dtype()).transpose(&[0, 3, 2, 1]);
        pooled / self.samples_of_each()
    }

    /// The gradient of the features from the gradient of [`Pooling::pool_by_bin`].
    fn spread_by_bin(&self, grad: Value<'b>) -> Value<'b> {
        let grad = grad / self.samples_of_each();
        let along_columns = DotDims { lhs_batch: vec![0, 3], rhs_batch: vec![0, 1], ..DotDims::default() };
        let columns = grad.dot_general(self.columns, &along_columns, self.dtype());
        let over_regions =
            DotDims { lhs_batch: vec![3], rhs_batch: vec![1], lhs_contract: vec![0], rhs_contract: vec![0] };
        let spread = columns.dot_general(self.rows, &over_regions, self.dtype()).transpose(&[4, 2, 0, 1, 5, 3]);
        let dims = spread.dims();
        spread.reshape(&[dims[0], dims[1] * dims[2] * dims[3], dims[4], dims[5]])
    }

    fn samples_of_each(&self) -> Value<'b> {
        self.samples.reshape(&[self.samples.numel(), 1, 1, 1])
    }
}

/// A batched matrix product, with the region as the batch.
fn each_region(lhs: usize, rhs: usize) -> DotDims {
    DotDims { lhs_batch: vec![0], rhs_batch: vec![0], lhs_contract: vec![lhs], rhs_contract: vec![rhs] }
}

/// Regions × bins × positions: the total weight of each position for the samples of a bin. The number of `samples` is
/// given for each region, and depends on the data.
fn weights<'b>(&Bins { start, length, count: bins, .. }: &Bins<'b>, samples: Value<'b>, size: i64) -> Value<'b> {
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

/// Weights of rows, regions × bins × positions, for each image: those of other images than the region's are zero.
fn rows_of_images<'b>(rows: Value<'b>, rois: Value<'b>, images: i64) -> Value<'b> {
    let image = rois.select_axis(1, 0).convert(DType::I32).unsqueeze(1);
    let is_image = image.eq(rows.builder().iota(DType::I32, &[rois.dim(0), images], 1));
    rows.unsqueeze(2) * is_image.convert(rows.dtype()).unsqueeze(1).unsqueeze(3)
}

/// Regions × bins × positions: whether a bin has a position, in a dimension of `size` of which bins may have the
/// positions before `last`. `side` is the first of two columns of the regions. The ends of a region are whole positions,
/// the second of which is within it if it is `closed`.
fn whole_bins<'b>(cx: &Cx<'b>, side: i64, [size, last]: [i64; 2], dtype: DType, closed: bool) -> Result<Value<'b>> {
    let (b, rois, scale) = (cx.b(), cx.tensor("rois")?.convert(dtype), cx.scalar("spatial_scale", dtype)?);
    let bins = cx.int(if side == 1 { "pooled_width" } else { "pooled_height" })?;
    let at = |side: i64| (rois.select_axis(1, side) * scale).round_away();
    let (start, end) = (at(side), at(side + 2));
    let length = of_bin((end - start + if closed { 1.0 } else { 0.0 }).max(1), bins).unsqueeze(1);
    let bin = b.iota(dtype, &[rois.dim(0), bins], 1);
    let edge = |at: Value<'b>| (at + start.unsqueeze(1)).clamp(0, last).unsqueeze(2);
    let (low, high) = (edge((bin * length).floor()), edge(((bin + 1.0) * length).ceil()));
    let place = b.iota(dtype, &[rois.dim(0), bins, size], 2);
    Ok(place.ge(low) & place.lt(high))
}

/// The largest feature of each bin, and its place in the image's plane; 0 and -1 for an empty bin.
fn largest_of_regions<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (input, rois) = (cx.tensor("input")?, cx.tensor("rois")?);
    let dtype = cx.float_dtype(input.dtype()).opmath();
    let columns = whole_bins(cx, 1, [input.dim(3); 2], dtype, true)?;
    let rows = whole_bins(cx, 2, [input.dim(2); 2], dtype, true)?;
    let images = rois.select_axis(1, 0).convert(DType::I32);
    let features = Places::slices(&input.dims(), 0, images).read(input.convert(dtype));
    // Regions × channels × rows × column bins, then × row bins.
    let within = columns.unsqueeze(1).unsqueeze(1);
    let [regions, channels, height, width] = [0, 1, 2, 3].map(|axis| features.dim(axis));
    let (down, across) = (rows.dim(1), columns.dim(1));
    let all = [regions, channels, height, across, width];
    let spread = features.unsqueeze(3).broadcast_to(&all);
    let (best, column) =
        extreme_with_position(within.broadcast_to(&all).select(spread, f64::NEG_INFINITY), 4, |x, axes| {
            x.reduce_max(axes)
        });
    let all = [regions, channels, down, across, height];
    let by_row = |x: Value<'b>| x.transpose(&[0, 1, 3, 2]).unsqueeze(2).broadcast_to(&all);
    let within = rows.unsqueeze(1).unsqueeze(3).broadcast_to(&all);
    let (best, row) =
        extreme_with_position(within.select(by_row(best), f64::NEG_INFINITY), 4, |x, axes| x.reduce_max(axes));
    let column = take_along(by_row(column), 4, row.unsqueeze(4)).reshape(&best.dims());
    let some = |x: Value<'b>| x.reduce_any(&[2]);
    let is_some = some(rows).unsqueeze(2) & some(columns).unsqueeze(1);
    let is_some = is_some.unsqueeze(1).broadcast_to(&best.dims());
    let place = (row * width + column).convert(DType::I32);
    Ok(vec![is_some.select(best, 0).convert(input.dtype()), is_some.select(place, -1)])
}
