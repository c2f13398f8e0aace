//! Elements that a mask chooses, moved to the front.

use stablehlo::{DType, Value};

use crate::places::{Combine, Places, rank_in_mask};

/// The true elements of a flat mask, in order.
pub(crate) struct Chosen<'b> {
    /// Where each element goes when the true ones move to the front. The others get places of their own
    /// behind the end, so that they are dropped and no two places are equal.
    targets: Value<'b>,
    /// How many are true; 0-d int64.
    pub count: Value<'b>,
}

impl<'b> Chosen<'b> {
    pub fn new(mask: Value<'b>) -> Chosen<'b> {
        let size = mask.numel();
        let dtype = if size < i64::from(i32::MAX) / 2 { DType::I32 } else { DType::I64 };
        let count = mask.convert(dtype).reduce_sum(&[0]).convert(DType::I64);
        let behind = mask.builder().iota(dtype, &[size], 0) + size;
        Chosen { targets: mask.select(rank_in_mask(mask).convert(dtype), behind), count }
    }

    fn size(&self) -> i64 {
        self.targets.numel()
    }

    /// The chosen rows of `values`, followed by what `fill`, of the mask's size, has there.
    pub fn pack(&self, values: Value<'b>, fill: Value<'b>) -> Value<'b> {
        Places::slices(&fill.dims(), 0, self.targets).unique().write(fill, values, Combine::Replace)
    }

    /// The positions of the chosen elements, followed by the mask's size.
    pub fn positions(&self) -> Value<'b> {
        let (b, dtype) = (self.targets.builder(), self.targets.dtype());
        self.pack(b.iota(dtype, &[self.size()], 0), b.splat(self.size(), dtype, &[self.size()]))
    }

    /// The coordinates of the chosen elements when the mask has the shape `sizes`, one vector for each
    /// dimension. Behind the count the first is out of range.
    pub fn coordinates(&self, sizes: &[i64]) -> Vec<Value<'b>> {
        unravel(self.positions(), sizes)
    }
}

/// Coordinates from row-major positions.
fn unravel<'b>(positions: Value<'b>, sizes: &[i64]) -> Vec<Value<'b>> {
    let strides = crate::view::contiguous_strides(sizes);
    (0..sizes.len())
        .map(|i| {
            let coordinate = if strides[i] == 1 { positions } else { positions / strides[i] };
            if i == 0 { coordinate } else { coordinate % sizes[i].max(1) }
        })
        .collect()
}

/// For each of `length` places, the segment that it lies in (int32); `starts`, in order, says where segments begin.
/// Empty ones start where the next one does.
pub(crate) fn segment_of_each(starts: Value<'_>, length: i64) -> Value<'_> {
    let b = starts.builder();
    let marks = Places::flat(length, crate::places::narrow(starts, length)).write(
        b.splat(0, DType::I32, &[length]),
        b.splat(1, DType::I32, &starts.dims()),
        Combine::Add,
    );
    crate::places::running_sum(marks) - 1
}
