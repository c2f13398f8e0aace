//! Elements of images around points, as `grid_sample` and deformable convolutions read them.

use stablehlo::{Builder, DType, Value};

use crate::places::{Combine, Places};

/// The elements of a sample along one dimension. Values are [batch, points, taps].
pub(crate) struct Taps<'b> {
    index: Value<'b>,
    inside: Value<'b>,
    weight: Value<'b>,
    /// The derivative of the weight by the point's coordinate.
    slope: Value<'b>,
}

impl<'b> Taps<'b> {
    /// At places in a dimension of `size` elements (0-d). Those outside count as zero.
    pub(crate) fn at(place: Value<'b>, size: Value<'b>, weight: Value<'b>, slope: Value<'b>) -> Taps<'b> {
        let inside = place.ge(0.0) & place.le(size - 1);
        Taps { index: inside.select(place, 0.0).convert(DType::I32), inside, weight, slope }
    }

    /// The two neighbours of positions [batch, points, 1], with their derivatives by the coordinate.
    pub(crate) fn linear(position: Value<'b>, moved: Value<'b>, size: Value<'b>) -> Taps<'b> {
        let below = position.floor();
        let part = position - below;
        let along = |taps: [Value<'b>; 2]| position.builder().concatenate(&taps, 2);
        Taps::at(along([below, below + 1.0]), size, along([-part + 1.0, part]), along([-moved, moved]))
    }
}

/// For each point, the elements of its sample. Values are [batch, points, elements].
pub(crate) struct Sampling<'b> {
    /// One for each spatial dimension of the image.
    taps: Vec<Taps<'b>>,
    /// The row of an element among the elements of all images.
    row: Value<'b>,
    inside: Value<'b>,
}

impl<'b> Sampling<'b> {
    /// Samples `points` points of each of `batch` images, whose spatial dimensions have `sizes`.
    pub(crate) fn new(b: &'b Builder, [batch, points]: [i64; 2], sizes: &[i64], taps: Vec<Taps<'b>>) -> Sampling<'b> {
        Sampling::of(b.iota(DType::I32, &[batch, points, 1], 0), sizes, taps)
    }

    /// Samples points of images whose numbers are given: [batch, points, 1].
    pub(crate) fn of(image: Value<'b>, sizes: &[i64], taps: Vec<Taps<'b>>) -> Sampling<'b> {
        let row = taps
            .iter()
            .zip(sizes)
            .fold(image, |row, (taps, &size)| combine_pairs(row * size, taps.index, |a, b| a + b));
        let inside = taps.iter().map(|taps| taps.inside).reduce(|a, b| combine_pairs(a, b, |a, b| a & b));
        Sampling { inside: inside.unwrap_or(image.eq(image)), row, taps }
    }

    /// The product of the weights. If `sloped` is given, the slope replaces the weight of that dimension.
    fn weight(&self, sloped: Option<usize>) -> Value<'b> {
        let factors =
            self.taps.iter().enumerate().map(|(i, taps)| if sloped == Some(i) { taps.slope } else { taps.weight });
        let product = factors.reduce(|a, b| combine_pairs(a, b, |a, b| a * b)).unwrap_or(self.row);
        self.inside.select(product, 0)
    }

    /// The elements: [batch, points, elements, channels]; zero outside the image.
    fn read(&self, rows: Value<'b>) -> Value<'b> {
        self.inside.unsqueeze(3).select(Places::slices(&rows.dims(), 0, self.row).read(rows), 0)
    }

    /// The samples of [`channel_rows`]: [batch, points, channels].
    pub(crate) fn sampled(&self, rows: Value<'b>) -> Value<'b> {
        (self.read(rows) * self.weight(None).unsqueeze(3)).reduce_sum(&[2])
    }

    /// The gradient of the rows from that of the samples, [batch, points, 1, channels].
    pub(crate) fn spread(&self, rows: Value<'b>, grad: Value<'b>) -> Value<'b> {
        let share = grad * self.weight(None).unsqueeze(3);
        Places::slices(&rows.dims(), 0, self.row).write(rows.splat_like(0), share, Combine::Add)
    }

    /// The gradients of the points' coordinates along each dimension, [batch, points], from that of the samples.
    pub(crate) fn slopes(&self, rows: Value<'b>, grad: Value<'b>) -> Vec<Value<'b>> {
        // The inner product of each element with the gradient of its sample, over channels.
        let agreement = (self.read(rows) * grad).reduce_sum(&[3]);
        (0..self.taps.len()).map(|i| (agreement * self.weight(Some(i))).reduce_sum(&[2])).collect()
    }
}

/// Combines all pairs of elements of the last dimensions of `a` and `b` into one dimension.
fn combine_pairs<'b>(a: Value<'b>, b: Value<'b>, combine: impl Fn(Value<'b>, Value<'b>) -> Value<'b>) -> Value<'b> {
    let all = combine(a.unsqueeze(3), b.unsqueeze(2));
    all.reshape(&[all.dim(0), all.dim(1), all.dim(2) * all.dim(3)])
}

/// [batch, channels, ...] as [batch · elements, channels].
pub(crate) fn channel_rows<'b>(x: Value<'b>) -> Value<'b> {
    let (batch, channels) = (x.dim(0), x.dim(1));
    let elements: i64 = x.dims()[2..].iter().product();
    x.reshape(&[batch, channels, elements]).swap_axes(1, 2).reshape(&[batch * elements, channels])
}
