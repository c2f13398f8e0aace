//! Bins of regions of interest, and means of a fixed number of bilinear samples in each. The cost of these does not depend
//! on the size of the images, and the number of regions may change.

use stablehlo::{DType, Value};

use crate::common::sampling::{Sampling, Taps, channel_rows};
use crate::cx::Cx;
use crate::error::Result;
use crate::spec::Dim;

/// The bins along one dimension of the features.
pub(super) struct Bins<'b> {
    /// The number of each region's image.
    pub image: Value<'b>,
    /// Where each region starts.
    pub start: Value<'b>,
    /// The length of its bins.
    pub length: Value<'b>,
    /// The number of its bins.
    pub count: i64,
}

impl<'b> Bins<'b> {
    /// The bins along rows and along columns, in a dtype that accumulates `dtype`.
    pub fn of(cx: &Cx<'b>, dtype: DType, is_aligned: bool) -> Result<[Bins<'b>; 2]> {
        let dtype = cx.float_dtype(dtype).opmath();
        let rois = cx.tensor("rois")?.zero_filled([0], "regions of merged dimensions").convert(dtype);
        let scale = cx.scalar("spatial_scale", dtype)?;
        let along = |low: i64, count: i64| {
            let at = |side: i64| rois.select_axis(1, side) * scale - if is_aligned { 0.5 } else { 0.0 };
            let length = at(low + 2) - at(low);
            let length = of_bin(if is_aligned { length } else { length.max(1) }, count);
            Bins { image: rois.select_axis(1, 0), start: at(low), length, count }
        };
        Ok([along(2, cx.int("pooled_height")?), along(1, cx.int("pooled_width")?)])
    }

    /// The positions of samples in a dimension of `size` elements (0-d), regions × bins × samples. Those that are more
    /// than one element outside read nothing.
    fn samples(&self, samples: i64, size: Value<'b>) -> Value<'b> {
        let (b, dtype) = (self.start.builder(), self.start.dtype());
        let dims = [self.start.dim(0), self.count, samples];
        let each = |x: Value<'b>| x.reshape(&[dims[0], 1, 1]).broadcast_to(&dims);
        let bin = each(self.start) + b.iota(dtype, &dims, 1) * each(self.length);
        let at = bin + (b.iota(dtype, &dims, 2) + 0.5) * each(self.length / samples);
        let is_near = at.ge(-1) & at.le(size.broadcast_to(&dims));
        is_near.select(at.max(0).min((size - 1).broadcast_to(&dims)), -2)
    }
}

/// The length of each bin. The barrier keeps XLA from multiplying by the rounded reciprocal of a constant: the result may
/// be rounded to an integer.
pub(super) fn of_bin(length: Value<'_>, bins: i64) -> Value<'_> {
    length / length.builder().scalar(bins, length.dtype()).barrier()
}

/// The samples of all bins. Their points are bin rows × bin columns × samples of a bin.
struct Samples<'b> {
    sampling: Sampling<'b>,
    /// Regions, bin rows, bin columns, samples of a bin.
    dims: [i64; 4],
}

impl<'b> Samples<'b> {
    /// `planes` are the capacities of the features' last two dimensions. `sizes` are their valid lengths (0-d).
    fn of(cx: &Cx<'b>, dtype: DType, [images, planes @ ..]: [i64; 3], sizes: [Value<'b>; 2]) -> Result<Samples<'b>> {
        let bins = Bins::of(cx, dtype, cx.bool("aligned")?)?;
        let samples = cx.int("sampling_ratio")?;
        let image = bins[0].image.convert(DType::I32).clamp(0, images - 1);
        let (regions, [down, across]) = (image.dim(0), bins.each_ref().map(|bins| bins.count));
        let all = [regions, down, across, samples, samples];
        let points = down * across * samples * samples;
        let taps = |i: usize| {
            let size = sizes[i].convert(bins[i].start.dtype());
            let at = bins[i].samples(samples, size).unsqueeze(2 - i).unsqueeze(4 - i).broadcast_to(&all);
            let position = at.reshape(&[regions, points, 1]);
            Taps::linear(position, position.splat_like(1), size)
        };
        let image = image.reshape(&[regions, 1, 1]).broadcast_to(&[regions, points, 1]);
        let sampling = Sampling::of(image, &planes, vec![taps(0), taps(1)]);
        Ok(Samples { sampling, dims: [regions, down, across, samples * samples] })
    }
}

/// Features to regions × channels × bins.
pub(super) fn pooled<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let input = cx.tensor("input")?;
    [0, 2, 3].into_iter().for_each(|axis| input.require_prefix(axis, "features of merged dimensions"));
    let [images, channels, height, width] = [0, 1, 2, 3].map(|axis| input.dim(axis));
    let sizes = [2, 3].map(|axis| input.size(axis, DType::I32));
    let samples = Samples::of(cx, input.dtype(), [images, height, width], sizes)?;
    let rows = channel_rows(input.without_extents().convert(input.dtype().opmath()));
    let [regions, down, across, count] = samples.dims;
    let sampled = samples.sampling.sampled(rows).reshape(&[regions, down * across, count, channels]);
    let means = sampled.reduce_sum(&[2]) / count;
    let result = means.swap_axes(1, 2).reshape(&[regions, channels, down, across]).convert(input.dtype());
    Ok(result.with_extent(0, cx.tensor("rois")?.extent(0)).with_extent(1, input.extent(1)))
}

/// The gradient of the features from the gradient of the regions.
pub(super) fn spread<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (b, grad) = (cx.b(), cx.tensor("grad")?);
    let sizes = [cx.dim("batch_size")?, cx.dim("channels")?, cx.dim("height")?, cx.dim("width")?];
    let [images, channels, height, width] = sizes.each_ref().map(|size| size.capacity);
    let plane = [&sizes[2], &sizes[3]].map(|size| cx.size_of(size));
    let samples = Samples::of(cx, grad.dtype(), [images, height, width], plane)?;
    let [regions, down, across, count] = samples.dims;
    if grad.dims() != [regions, channels, down, across] {
        b.refuse_bounded("a gradient with other padding than its regions");
    }
    let dtype = grad.dtype().opmath();
    let filled = grad.zero_filled([0, 1], "a gradient of merged dimensions").without_extents().convert(dtype);
    let share = channel_rows(filled / count).reshape(&[regions, down * across, 1, channels]);
    let share = share.broadcast_to(&[regions, down * across, count, channels]);
    let share = share.reshape(&[regions, down * across * count, 1, channels]);
    let rows = b.splat(0, dtype, &[images * height * width, channels]);
    let sums = samples.sampling.spread(rows, share).reshape(&[images, height * width, channels]);
    let result = sums.swap_axes(1, 2).reshape(&[images, channels, height, width]).convert(grad.dtype());
    let extent = |size: &Dim| size.extent(|number| b.capacity(number));
    Ok(result.with_extents(sizes.iter().map(extent).collect::<Vec<_>>()))
}
