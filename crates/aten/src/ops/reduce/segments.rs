//! Reductions of segments along a dimension, and their gradients.

use stablehlo::{DType, DTypes, Number, Value};

use crate::common::chosen::segment_of_each_in;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{Combine, Places};
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["segment_reduce"], segment_reduce).takes(&["data"], DTypes::FLOATS),
    one(&["_segment_reduce_backward"], segment_reduce_backward).takes(&["data"], DTypes::FLOATS),
]);

/// How the elements of a segment combine, and whether the result is their mean.
fn reduction(cx: &Cx<'_>) -> Result<(Combine, bool)> {
    Ok(match cx.str("reduce")?.as_str() {
        "sum" => (Combine::Add, false),
        "mean" => (Combine::Add, true),
        "prod" => (Combine::Multiply, false),
        "max" | "amax" => (Combine::Max, false),
        "min" | "amin" => (Combine::Min, false),
        other => return Err(Error::runtime(format!("unsupported reduction given! {other}"))),
    })
}

/// The segments of a tensor along `axis`. The dimensions before it, which are called leading here, have segments of their own.
struct Segments<'b> {
    axis: usize,
    /// The leading dimensions and sizes of each segment: int64.
    lengths: Value<'b>,
    /// For each element along the axis, the number of its segment: int32. Out of range for elements of none.
    of_each: Value<'b>,
    /// The sizes of the tensor.
    dims: Vec<i64>,
}

impl<'b> Segments<'b> {
    /// Those of `data`, by the argument `lengths` or `offsets`.
    fn of(cx: &Cx<'b>, data: Value<'b>) -> Result<Segments<'b>> {
        let axis = cx.axis_arg("axis", data.rank())?;
        let given = match cx.tensor_or_none("lengths") {
            Some(lengths) => lengths,
            None => cx.tensor("offsets")?,
        };
        if given.rank() != axis + 1 || given.dims()[..axis] != data.dims()[..axis] {
            return Err(Error::runtime("segment_reduce(): lengths or offsets of other sizes than the data"));
        }
        let given = given.convert(DType::I64);
        // The start of each segment, and the end of the last one.
        let bounds = if cx.is_none("lengths") {
            let behind = |x: Value<'b>| x.builder().scalar(i64::MAX, DType::I64);
            given.filled([axis], behind, "offsets in merged dimensions").without_extents()
        } else {
            let lengths = given.zero_filled([axis], "lengths in merged dimensions").without_extents();
            lengths.scan(axis, Number::Int(0), |a, b| a + b).pad_axis(axis, 0, 1, 0)
        };
        let count = bounds.dim(axis) - 1;
        let lengths = bounds.slice_axis(axis, 1, count + 1) - bounds.slice_axis(axis, 0, count);
        let of_each = segment_of_each_in(bounds, data);
        Ok(Segments { axis, lengths, of_each, dims: data.dims() })
    }

    /// The number of segments, or its capacity.
    fn count(&self) -> i64 {
        self.lengths.dim(self.axis)
    }

    /// The sizes of a value that has one element for each segment along the axis.
    fn sizes(&self) -> Vec<i64> {
        let mut sizes = self.dims.clone();
        sizes[self.axis] = self.count();
        sizes
    }

    /// Where the segments' elements are in a value of them.
    fn places(&self) -> Places<'b> {
        match self.axis {
            0 => Places::slices(&self.sizes(), 0, self.of_each),
            axis => Places::along(axis, self.over_dims(self.of_each, &self.dims)),
        }
    }

    /// A value of the leading dimensions and another one, broadcast over the trailing dimensions of `dims`.
    fn over_dims(&self, value: Value<'b>, dims: &[i64]) -> Value<'b> {
        value.broadcast_in_dim(dims, &(0..=self.axis).collect::<Vec<_>>())
    }

    /// The elements of each segment combined with each other and with `start`, 0-d.
    fn combined(&self, data: Value<'b>, start: Value<'b>, combine: Combine) -> Value<'b> {
        let others = (0..self.dims.len()).filter(|&axis| axis != self.axis);
        let room = start.broadcast_to(&self.sizes());
        let room = others.fold(room, |room, axis| room.with_extent(axis, data.extent(axis)));
        self.places().write(room, data, combine)
    }

    /// For each element, that of its segment.
    fn of_segment(&self, values: Value<'b>) -> Value<'b> {
        self.places().read(values.whole_along(self.axis))
    }

    /// For each element, all of its segment combined.
    fn over_segment(&self, data: Value<'b>, start: Value<'b>, combine: Combine) -> Value<'b> {
        self.of_segment(self.combined(data, start, combine))
    }
}

fn segment_reduce<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let data = cx.tensor("data")?;
    let (combine, is_mean) = reduction(cx)?;
    let segments = Segments::of(cx, data)?;
    let axis = segments.axis;
    let given = cx.tensor_or_none("lengths");
    if let Some(lengths) = given
        && !cx.bool("unsafe")?
    {
        let lengths = lengths.zero_filled([axis], "lengths in merged dimensions").convert(DType::I64);
        cx.check_none(lengths.lt(0), Error::runtime("lengths contains negative value!"));
        let total = lengths.reduce_sum(&[axis]);
        let error = "segment_reduce(): Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) \
                     when !unsafe.";
        cx.check_none(total.ne(data.size(axis, DType::I64).broadcast_to(&total.dims())), Error::runtime(error));
    }
    let wide = data.dtype().opmath();
    let initial = cx.scalar_or_none("initial", wide)?;
    let start = initial.unwrap_or_else(|| cx.b().scalar(combine.identity(wide), wide));
    let mut result = segments.combined(data.convert(wide), start, combine);
    if is_mean {
        let lengths = segments.over_dims(segments.lengths, &result.dims());
        let empty = initial.unwrap_or_else(|| cx.b().scalar(f64::NAN, wide)).broadcast_to(&result.dims());
        result = lengths.eq(0).select(empty, result / lengths.max(1).convert(wide));
    }
    let result = result.convert(data.dtype());
    Ok(match given {
        Some(lengths) => result.with_extent(axis, lengths.extent(axis)),
        None => cx.resized(0, result),
    })
}

fn segment_reduce_backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (data, grad, output) = (cx.tensor("data")?, cx.tensor("grad")?, cx.tensor("output")?);
    let (dtype, wide) = (data.dtype(), data.dtype().opmath());
    let (combine, is_mean) = reduction(cx)?;
    let segments = Segments::of(cx, data)?;
    let axis = segments.axis;
    let data = data.convert(wide);
    // Values of segments may have another capacity than the lengths or offsets.
    let fitted = |value: Value<'b>| {
        let whole = value.convert(wide).whole_along(axis);
        whole.pad_axis(axis, 0, 0, segments.count() - whole.dim(axis))
    };
    let number = |number: f64| cx.b().scalar(number, wide);
    let count = grad.size(axis, DType::I32).broadcast_to(&segments.of_each.dims());
    let of_none = segments.of_each.lt(0) | segments.of_each.ge(count);
    let grad = segments.of_segment(fitted(grad));
    let grad = segments.over_dims(of_none, &data.dims()).select(grad.splat_like(0), grad);
    let result = match combine {
        Combine::Add if is_mean => {
            let lengths = segments.lengths.max(1).convert(wide);
            let lengths = Places::along(axis, segments.of_each).read(lengths);
            grad / segments.over_dims(lengths, &data.dims())
        }
        Combine::Multiply => {
            let start = cx.scalar_or_none("initial", wide)?.unwrap_or_else(|| number(1.0));
            let (is_zero, is_nan) = (data.eq(0), data.is_nan());
            // Whether another element of the segment is such.
            let others = |is_it: Value<'b>| {
                let one = is_it.convert(wide);
                (segments.over_segment(one, number(0.0), Combine::Add) - one).gt(0)
            };
            let regular = (is_zero | is_nan).select(data.splat_like(1), data);
            let without = segments.over_segment(regular, start, Combine::Multiply) / regular;
            let without = others(is_zero).select(without.splat_like(0), without);
            grad * others(is_nan).select(without.splat_like(f64::NAN), without)
        }
        Combine::Max | Combine::Min => {
            let is_chosen = (data.eq(segments.of_segment(fitted(output))) | data.is_nan()).convert(wide);
            grad * is_chosen / segments.over_segment(is_chosen, number(0.0), Combine::Add).max(1)
        }
        Combine::Add | Combine::Replace => grad,
    };
    Ok(result.convert(dtype))
}
