//! Writing by index. Indices out of range write nothing, and a check reports them.

use stablehlo::{DType, DTypes, Value};

use crate::check::Counts;
use crate::common::chosen::Chosen;
use crate::common::index_check::{looks_at_indices, out_of_bounds, out_of_range};
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result};
use crate::places::{Combine, Places, at_least_1d, corner, from_start, narrow, rank_in_mask, take_flat, valid_mask};
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["scatter.src"], |cx| along(cx)?.write(cx, "src", Combine::Replace)).bounded(),
    one(&["scatter.value"], |cx| along(cx)?.write(cx, "value", Combine::Replace)).bounded(),
    one(&["scatter.reduce"], |cx| along(cx)?.write(cx, "src", named(cx)?)).bounded(),
    one(&["scatter.value_reduce"], |cx| along(cx)?.write(cx, "value", named(cx)?)).bounded(),
    one(&["scatter_add"], |cx| along(cx)?.write(cx, "src", Combine::Add)).bounded(),
    one(&["scatter_reduce.two"], |cx| along(cx)?.reduce(cx, "src")).bounded(),
    one(&["index_copy"], |cx| {
        let (x, axis) = sliced(cx)?;
        let mut error = out_of_bounds(ErrorKind::Index, x, axis);
        error.message = format!("index_copy_(): {}", error.message);
        slices(cx, looks_at_indices, error)?.write(cx, "source", Combine::Replace)
    })
    .bounded(),
    one(&["index_add"], |cx| {
        let source = cx.tensor("source")?;
        let wide = source.dtype().opmath();
        let scaled = match cx.known_number("alpha") {
            Some(alpha) if alpha.to_f64() == 1.0 => source,
            _ => source.convert(wide) * cx.scalar("alpha", wide)?,
        };
        let (x, axis) = sliced(cx)?;
        let error = if x.rank() > 1 { out_of_bounds(ErrorKind::Runtime, x, axis) } else { out_of_range() };
        Ok(slices(cx, looks_at_indices, error)?.combine(cx.tensor("self")?, scaled, Combine::Add))
    })
    .bounded(),
    one(&["index_reduce"], |cx| slices(cx, |_, _| true, out_of_range())?.reduce(cx, "source"))
        .takes(&["self"], DTypes::REAL_NUMBERS)
        .bounded(),
    one(&["index_fill.int_Scalar", "index_fill.int_Tensor"], index_fill).bounded(),
    one(&["masked_fill.Scalar", "masked_fill.Tensor"], |cx| {
        let (x, mask) = cx.tensor("self")?.broadcast_with(cx.tensor("mask")?);
        let value = cx.fitting("value", x.dtype())?.broadcast_to(&x.dims());
        Ok(anywhere(cx, mask.convert(DType::Bool)).select(value, x))
    })
    .bounded(),
    one(&["masked_scatter"], |cx| {
        let (x, mask) = cx.tensor("self")?.broadcast_with(cx.tensor("mask")?);
        let source = cx.tensor("source")?;
        // Only then are the valid elements the first ones.
        let behind: Vec<usize> = (1..source.rank()).collect();
        source.require_whole(&behind, "values to scatter");
        let mask = valid_mask(mask, x, 0);
        let values = take_flat(source.without_extents().flatten(), rank_in_mask(mask));
        Ok(mask.bounded_like(x).select(values.bounded_like(x), x))
    })
    .bounded(),
    one(&["masked_scatter_backward"], |cx| {
        let sizes = cx.ints("sizes")?;
        let (grad, mask) = cx.tensor("grad_output")?.broadcast_with(cx.tensor("mask")?);
        let grad = grad.flatten();
        let packed = Chosen::new(mask.convert(DType::Bool).flatten()).pack(grad, grad.splat_like(0));
        let (have, want) = (grad.numel(), sizes.iter().product::<i64>());
        Ok(packed.slice_axis(0, 0, have.min(want)).pad_axis(0, 0, 0, (want - have).max(0)).reshape(&sizes))
    }),
    one(&["histc"], histc)
        .takes(&["self"], DTypes::REAL_NUMBERS)
        .requires(&["min", "max"], |n, _| n[0] == n[1] || n[0] < n[1] && n.iter().all(|bound| bound.is_finite()))
        .bounded(),
];

/// A mask over all positions of `self`. PyTorch fills expanded tensors as well: an element of memory is filled if any of
/// its positions is true.
pub(crate) fn anywhere<'b>(cx: &Cx<'b>, mask: Value<'b>) -> Value<'b> {
    let over = |mask: Value<'b>, axis| mask.reduce_any(&[axis]).unsqueeze(axis).broadcast_to(&mask.dims());
    cx.overlapping_axes("self").into_iter().fold(mask, over)
}

fn named(cx: &Cx<'_>) -> Result<Combine> {
    let name = cx.str("reduce")?;
    if matches!(name.as_str(), "amax" | "amin") && cx.ty("index")?.numel() > 0 {
        cx.check_dtype(cx.ty("self")?.dtype, DTypes::REAL)?;
    }
    match name.as_str() {
        "add" | "sum" | "mean" => Ok(Combine::Add),
        "multiply" | "prod" => Ok(Combine::Multiply),
        "amax" => Ok(Combine::Max),
        "amin" => Ok(Combine::Min),
        other => {
            Err(Error::runtime(format!("reduce argument must be one of sum, prod, mean, amax, amin, not {other}")))
        }
    }
}

/// The elements of `self` that updates are written to. They are in its leading corner, which usually is all of it.
struct Target<'b> {
    places: Places<'b>,
    axis: usize,
}

/// The elements that scatter operators write: one along `dim` for each element of `index`.
fn along<'b>(cx: &Cx<'b>) -> Result<Target<'b>> {
    let x = at_least_1d(cx.tensor("self")?);
    let dims = x.dims();
    let axis = cx.axis_arg("dim", dims.len())?;
    let index = at_least_1d(cx.tensor("index")?);
    cx.check_index(index, x, axis, Counts::FromStart, out_of_bounds(ErrorKind::Runtime, x, axis))?;
    Ok(Target { places: Places::along(axis, narrow(index, dims[axis])).among_valid(x), axis })
}

/// The tensor that index operators write to, and the dimension `dim`.
fn sliced<'b>(cx: &Cx<'b>) -> Result<(Value<'b>, usize)> {
    let x = at_least_1d(cx.tensor("self")?);
    Ok((x, cx.axis_arg("dim", x.rank())?))
}

/// The elements that index operators write: slices along `dim`. `error` is raised for an index out of range, if the
/// operator looks at the indices into this dimension of the tensor.
fn slices<'b>(cx: &Cx<'b>, looks: fn(Value<'b>, usize) -> bool, error: Error) -> Result<Target<'b>> {
    let (x, axis) = sliced(cx)?;
    let dims = x.dims();
    let index = cx.tensor("index")?.flatten();
    if looks(x, axis) {
        cx.check_index(index, x, axis, Counts::FromStart, error)?;
    }
    Ok(Target { places: Places::slices(&dims, axis, narrow(index, dims[axis])).among_valid(x), axis })
}

impl<'b> Target<'b> {
    fn combine(&self, x: Value<'b>, updates: Value<'b>, combine: Combine) -> Value<'b> {
        let base = at_least_1d(x);
        let shape = self.places.shape();
        if shape.contains(&0) {
            return x;
        }
        // Updates may be larger than the index.
        let zeros = vec![0; shape.len()];
        let updates = match updates.rank() {
            0 => updates.broadcast_to(shape),
            rank if rank == shape.len() => updates.slice(&zeros, shape, &vec![1; rank]),
            _ => updates.reshape(shape),
        };
        let part = corner(base, self.axis, shape);
        let written = self.places.write(part, updates, combine);
        if written.dims() == base.dims() {
            return written.reshape(&x.dims());
        }
        let starts: Vec<Value<'b>> = zeros.iter().map(|&start| x.builder().scalar(start, DType::I32)).collect();
        base.dynamic_update_slice(written, &starts).reshape(&x.dims())
    }

    fn write(&self, cx: &Cx<'b>, updates: &str, combine: Combine) -> Result<Value<'b>> {
        let x = cx.tensor("self")?;
        Ok(self.combine(x, cx.fitting(updates, x.dtype())?, combine))
    }

    /// `scatter_reduce` and `index_reduce`. Without `include_self`, elements that receive updates start from the
    /// identity of the reduction.
    fn reduce(&self, cx: &Cx<'b>, updates: &str) -> Result<Value<'b>> {
        let x = cx.tensor("self")?;
        let dtype = x.dtype().opmath();
        let (old, updates) = (x.convert(dtype), cx.operand(updates, dtype)?);
        let mean = cx.str("reduce")? == "mean";
        let combine = named(cx)?;
        let include_self = cx.bool("include_self")?;
        let b = cx.b();
        let start = if include_self {
            old
        } else {
            self.combine(old, b.scalar(combine.identity(dtype), dtype), Combine::Replace)
        };
        let total = self.combine(start, updates, combine);
        if !mean {
            return Ok(total.convert(x.dtype()));
        }
        let before = b.splat(i64::from(include_self), dtype.real(), &x.dims()).bounded_like(x);
        let count = self.combine(before, b.scalar(1, dtype.real()), Combine::Add).max(1);
        Ok(floor_divide(total, count.convert(dtype)).convert(x.dtype()))
    }
}

/// Division by a positive number. Integers round down.
fn floor_divide<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    let quotient = a / b;
    if !a.dtype().is_integer() || a.dtype().is_unsigned() {
        return quotient;
    }
    (a % b).lt(0).select(quotient - 1, quotient)
}

/// Computes a mask of the filled indices of the dimension, so that no slices are scattered.
fn index_fill<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let whole = at_least_1d(x);
    let axis = cx.axis_arg("dim", whole.rank())?;
    let size = whole.dim(axis);
    let index = cx.tensor("index")?.flatten();
    if index.dtype() != DType::I64 {
        return Err(Error::index("index_fill_(): Expected dtype int64 for index."));
    }
    if cx.ty("value")?.dtype.is_complex() && !x.dtype().is_complex() {
        return Err(Error::runtime("index_fill_(): Converting complex Scalar to non-complex type is not supported"));
    }
    if looks_at_indices(whole, axis) {
        cx.check_index(index, whole, axis, Counts::FromBothEnds, out_of_bounds(ErrorKind::Index, whole, axis))?;
    }
    whole.require_prefix(axis, "a mask of indices into merged dimensions");
    let index = narrow(from_start(index, whole, axis), size);
    let b = cx.b();
    let (unmarked, marks) = (b.splat(false, DType::Bool, &[size]), b.splat(true, DType::Bool, &index.dims()));
    let mut marked = Places::flat(size, index).write(unmarked, marks, Combine::Replace);
    // All positions along the dimension of an expanded tensor are the same memory.
    if cx.overlapping_axes("self").contains(&axis) {
        marked = marked.reduce_any(&[0]).broadcast_to(&[size]);
    }
    let value = cx.fitting("value", x.dtype())?.reshape(&[]).broadcast_to(&whole.dims());
    Ok(marked.broadcast_in_dim(&whole.dims(), &[axis]).select(value, whole).reshape(&x.dims()))
}

/// The number of elements in each of `bins` equal bins. If `min` equals `max`, the range of the data is used.
fn histc<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let bins = cx.int("bins")?;
    // Integers use integer division, as in CUDA's kernel: float32 cannot represent all of them.
    let dtype = if x.dtype().is_float() { x.dtype().opmath() } else { DType::I64 };
    let values = x.flatten().convert(dtype);
    let (low, high) = (cx.scalar("min", dtype)?, cx.scalar("max", dtype)?);
    let (low, high) = if values.numel() == 0 {
        (low, high)
    } else {
        let of_data = low.eq(high);
        if dtype.is_float() {
            // PyTorch's message has the range.
            let error = Error::runtime("torch.histc: range of the elements is not finite");
            let sum = values.reduce_max(&[0]) - values.reduce_min(&[0]);
            cx.check_none(of_data & !sum.is_finite(), error);
        }
        (of_data.select(values.reduce_min(&[0]), low), of_data.select(values.reduce_max(&[0]), high))
    };
    let single = low.eq(high);
    let (low, high) = (single.select(low - 1, low), single.select(high + 1, high));
    let place = (values - low) * bins / (high - low);
    let place = if dtype.is_float() { place.floor() } else { place };
    let place = values.eq(high).select(place.splat_like(bins - 1), place);
    let b = cx.b();
    let inside = (values.ge(low) & values.le(high)).masked(&[0], b.scalar(false, DType::Bool));
    let index = inside.select(place, bins).convert(DType::I32).without_extents();
    let zeros = b.splat(0, DType::I32, &[bins]);
    let counts = Places::flat(bins, index).write(zeros, b.splat(1, DType::I32, &index.dims()), Combine::Add);
    Ok(counts.convert(x.dtype()))
}
