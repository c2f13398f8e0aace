//! Moves the elements that a mask selects to the front.

use stablehlo::{DType, Number, Value};

use crate::places::{Combine, Places, narrow, rank_in_mask};

/// The true elements of a flat mask, in order.
pub(crate) struct Chosen<'b> {
    /// The target index of each element when the true elements move to the front. False elements get distinct indices
    /// beyond the end, so the scatter drops them and its indices stay unique.
    targets: Value<'b>,
    /// The number of true elements; 0-d int64.
    pub count: Value<'b>,
}

impl<'b> Chosen<'b> {
    pub fn new(mask: Value<'b>) -> Chosen<'b> {
        let size = mask.numel();
        let dtype = DType::of_counts(2 * size);
        let count = mask.convert(dtype).reduce_sum(&[0]).convert(DType::I64);
        let behind = mask.builder().iota(dtype, &[size], 0) + size;
        Chosen { targets: mask.select(rank_in_mask(mask).convert(dtype), behind), count }
    }

    fn size(&self) -> i64 {
        self.targets.numel()
    }

    /// The selected rows of `values`, followed by the rows of `fill`, which has the mask's size.
    pub fn pack(&self, values: Value<'b>, fill: Value<'b>) -> Value<'b> {
        Places::slices(&fill.dims(), 0, self.targets).unique().write(fill, values, Combine::Replace)
    }

    /// The positions of the selected elements, followed by the mask's size.
    pub fn positions(&self) -> Value<'b> {
        let (b, dtype) = (self.targets.builder(), self.targets.dtype());
        self.pack(b.iota(dtype, &[self.size()], 0), b.splat(self.size(), dtype, &[self.size()]))
    }

    /// The coordinates of the selected elements in a mask of shape `sizes`, one vector for each dimension. After
    /// `count`, the first coordinate is out of range.
    pub fn coordinates(&self, sizes: &[i64]) -> Vec<Value<'b>> {
        unravel(self.positions(), sizes)
    }
}

/// Coordinates from row-major positions.
fn unravel<'b>(positions: Value<'b>, sizes: &[i64]) -> Vec<Value<'b>> {
    let strides = crate::strides::contiguous_strides(sizes);
    (0..sizes.len())
        .map(|i| {
            let coordinate = if strides[i] == 1 { positions } else { positions / strides[i] };
            if i == 0 { coordinate } else { coordinate % sizes[i].max(1) }
        })
        .collect()
}

/// For each of `length` positions of the last dimension, the number of its segment (int32). `starts` has the ascending
/// starts of the segments in its last dimension. An empty segment has the start of the next one.
pub(crate) fn segment_of_each(starts: Value<'_>, length: i64) -> Value<'_> {
    segments_at(Places::along(starts.rank() - 1, narrow(starts, length)), starts, length)
}

/// The same for each element of `x` along the last dimension of `starts`. The starts count valid elements.
pub(crate) fn segment_of_each_in<'b>(starts: Value<'b>, x: Value<'b>) -> Value<'b> {
    let axis = starts.rank() - 1;
    let length = x.dim(axis);
    let numbers = segments_at(Places::along(axis, narrow(starts, length)).among_valid(x), starts, length);
    numbers.with_extent(axis, x.extent(axis))
}

fn segments_at<'b>(places: Places<'b>, starts: Value<'b>, length: i64) -> Value<'b> {
    let (b, mut dims) = (starts.builder(), starts.dims());
    let last = dims.len() - 1;
    dims[last] = length;
    let dtype = DType::of_counts(starts.dim(last));
    let ones = b.splat(1, dtype, &starts.dims());
    let marks = places.write(b.splat(0, dtype, &dims), ones, Combine::Add);
    marks.scan(last, Number::Int(0), |a, b| a + b) - 1
}
