//! Views as functions of values, for graphs: on eager tensors PyTorch makes views without asking the
//! backend, and the lowering reads through them. Their `_copy` twins are the same functions.

use stablehlo::{Builder, DType, Value};

use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::ops::index::Places;
use crate::spec::{ArgSpec, Dim, TensorSpec};
use crate::table::{Row, many, one};
use crate::view::{self, contiguous_strides};

pub(crate) const ROWS: &[Row] = &[
    one(&["alias", "detach", "alias_copy", "detach_copy", "resolve_conj", "resolve_neg"], |cx| cx.tensor("self"))
        .bounded(),
    one(&["view", "_unsafe_view", "view_copy", "_reshape_alias", "_reshape_copy"], |cx| {
        let x = cx.tensor("self")?;
        Ok(x.reshape(&inferred(cx.capacities("size")?, x.numel())?))
    })
    .bounded(),
    one(&["reshape"], |cx| {
        let x = cx.tensor("self")?;
        Ok(x.reshape(&inferred(cx.capacities("shape")?, x.numel())?))
    })
    .bounded(),
    one(&["view.dtype", "view_copy.dtype"], |cx| {
        let x = cx.tensor("self")?;
        let dtype = cx.dtype_or_none("dtype").unwrap_or(x.dtype());
        let mut dims = x.dims();
        if let Some(last) = dims.last_mut() {
            *last = *last * x.dtype().size_bytes() as i64 / dtype.size_bytes() as i64;
        }
        Ok(view::reinterpret(x, dtype).reshape(&dims))
    }),
    one(&["permute", "permute_copy"], |cx| {
        let x = cx.tensor("self")?;
        let dims = cx.ints("dims")?;
        let order = dims.iter().map(|&dim| cx.axis(dim, x.rank())).collect::<Result<Vec<usize>>>()?;
        Ok(x.transpose(&order))
    })
    .bounded(),
    one(&["transpose.int", "transpose_copy.int"], |cx| {
        let x = cx.tensor("self")?;
        let (a, b) = (cx.axis_arg("dim0", x.rank())?, cx.axis_arg("dim1", x.rank())?);
        Ok(if x.rank() == 0 { x } else { x.swap_axes(a, b) })
    })
    .bounded(),
    one(&["t", "t_copy"], |cx| {
        let x = cx.tensor("self")?;
        Ok(if x.rank() < 2 { x } else { x.transpose(&[1, 0]) })
    })
    .bounded(),
    one(&["expand", "expand_copy"], |cx| {
        let x = cx.tensor("self")?;
        let mut sizes = cx.capacities("size")?;
        let added = sizes.len().saturating_sub(x.rank());
        for (size, old) in sizes.iter_mut().skip(added).zip(x.dims()) {
            if *size == -1 {
                *size = old;
            }
        }
        Ok(x.broadcast_to(&sizes))
    })
    .bounded(),
    one(&["squeeze", "squeeze_copy"], |cx| {
        let x = cx.tensor("self")?;
        let kept: Vec<i64> = x.dims().into_iter().filter(|&size| size != 1).collect();
        Ok(x.reshape(&kept))
    })
    .bounded(),
    one(&["squeeze.dim", "squeeze.dims", "squeeze_copy.dim", "squeeze_copy.dims"], |cx| {
        let x = cx.tensor("self")?;
        let axes = if cx.ints("dim")?.is_empty() { Vec::new() } else { cx.axes_arg("dim", x.rank())? };
        let dims = x.dims();
        let kept: Vec<i64> = (0..dims.len()).filter(|i| dims[*i] != 1 || !axes.contains(i)).map(|i| dims[i]).collect();
        Ok(x.reshape(&kept))
    })
    .bounded(),
    one(&["unsqueeze", "unsqueeze_copy"], |cx| {
        let x = cx.tensor("self")?;
        Ok(x.unsqueeze(cx.axis_arg("dim", x.rank() + 1)?))
    })
    .bounded(),
    one(&["select.int", "select_copy.int"], |cx| match bounded_axis(cx)? {
        Some(axis) => select_bounded(cx, axis),
        None => read(cx, selected),
    })
    .bounded(),
    one(&["slice.Tensor", "slice_copy.Tensor"], |cx| match bounded_axis(cx)? {
        Some(axis) => slice_bounded(cx, axis),
        None => read(cx, sliced),
    })
    .bounded(),
    one(&["narrow_copy"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        let start = from_start(cx.int("start")?, x.dim(axis));
        Ok(x.slice_axis(axis, start, start + cx.int("length")?))
    }),
    one(&["diagonal", "diagonal_copy"], |cx| read(cx, diagonal)),
    one(&["as_strided", "as_strided_copy"], |cx| read(cx, strided)),
    one(&["unfold", "unfold_copy"], |cx| {
        let x = cx.tensor("self")?;
        let (size, step) = (cx.int("size")?, cx.int("step")?);
        if x.rank() == 0 {
            return Ok(x.broadcast_to(&[size]));
        }
        let axis = cx.axis_arg("dimension", x.rank())?;
        let windows = windows(cx.b(), &x.dims(), axis, size, step).read(x);
        Ok(windows.move_axis(axis + 1, x.rank()))
    }),
    many(&["split.Tensor", "split_copy.Tensor", "unsafe_split.Tensor"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        let size = x.dim(axis);
        let part = cx.int("split_size")?;
        let count = if part == 0 { 1 } else { ((size + part - 1) / part).max(1) };
        let sizes: Vec<i64> = (0..count).map(|i| part.min(size - i * part)).collect();
        Ok(split(x, axis, &sizes))
    })
    .bounded(),
    many(&["split_with_sizes", "split_with_sizes_copy", "unsafe_split_with_sizes"], |cx| {
        let x = cx.tensor("self")?;
        Ok(split(x, cx.axis_arg("dim", x.rank())?, &cx.ints("split_sizes")?))
    })
    .bounded(),
    many(&["unbind.int", "unbind_copy.int"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        Ok((0..x.dim(axis)).map(|i| x.select_axis(axis, i)).collect())
    })
    .bounded(),
    one(&["view_as_real", "view_as_real_copy"], |cx| {
        let x = cx.tensor("self")?;
        let last = x.rank();
        Ok(cx.b().concatenate(&[x.real().unsqueeze(last), x.imag().unsqueeze(last)], last))
    }),
    one(&["view_as_complex", "view_as_complex_copy"], |cx| {
        let x = cx.tensor("self")?;
        let last = x.rank().saturating_sub(1);
        Ok(x.select_axis(last, 0).complex(x.select_axis(last, 1)))
    }),
    one(&["real"], |cx| Ok(cx.tensor("self")?.real())).bounded(),
    one(&["imag"], |cx| Ok(cx.tensor("self")?.imag())),
    one(&["_conj", "_conj_copy"], |cx| {
        let x = cx.tensor("self")?;
        Ok(if x.dtype().is_complex() { x.real().complex(-x.imag()) } else { x })
    })
    .bounded(),
    one(&["_neg_view", "_neg_view_copy"], |cx| Ok(-cx.tensor("self")?)).bounded(),
];

/// The argument `dim`, if that dimension of `self`, or what is taken of it, is bounded.
fn bounded_axis(cx: &Cx<'_>) -> Result<Option<usize>> {
    let x = cx.tensor("self")?;
    let axis = cx.axis_arg("dim", x.rank())?;
    Ok(Some(axis).filter(|&axis| x.rank() > 0 && (x.is_bounded_along(&[axis]) || takes_bounded(cx))))
}

/// Whether a slice or a selection is from or up to a bounded size.
fn takes_bounded(cx: &Cx<'_>) -> bool {
    ["start", "end", "index"].into_iter().any(|name| matches!(cx.arg(name), Arg::Plain(ArgSpec::Dim(_))))
}

/// The place of an index, which counts from the end where it is negative, in a bounded dimension of `size`: int64,
/// 0-d.
fn place_in<'b>(cx: &Cx<'b>, size: Value<'b>, name: &str) -> Result<Value<'b>> {
    let index = cx.dim(name)?;
    let place = cx.size_of(&index);
    Ok(if index.sizes.is_empty() && index.capacity < 0 { size + place } else { place })
}

/// Where a slice of a bounded dimension of `size` begins: int64, 0-d.
fn start_of<'b>(cx: &Cx<'b>, size: Value<'b>) -> Result<Value<'b>> {
    match cx.is_none("start") {
        true => Ok(cx.b().scalar(0, DType::I64)),
        false => Ok(place_in(cx, size, "start")?.max(0).min(size)),
    }
}

/// The dimension `dim` of the argument `input_sizes` and its size, if that is bounded.
pub(crate) fn bounded_input<'b>(cx: &Cx<'b>) -> Result<Option<(usize, Value<'b>)>> {
    let sizes = cx.dims("input_sizes")?;
    let axis = cx.axis_arg("dim", sizes.len())?;
    let bounded = |size: &&Dim| !size.sizes.is_empty() || takes_bounded(cx);
    Ok(sizes.get(axis).filter(bounded).map(|size| (axis, cx.size_of(size))))
}

/// The gradient of [`slice_bounded`].
pub(crate) fn slice_back<'b>(cx: &Cx<'b>, zeros: Value<'b>, axis: usize, size: &Value<'b>) -> Result<Value<'b>> {
    if cx.int_or_none("step").unwrap_or(1) != 1 {
        return Err(Error::not_implemented("a slice of a bounded dimension in steps"));
    }
    let grad = cx.tensor("grad_output")?;
    let filled = grad.filled_along(axis, cx.b().scalar(0, grad.dtype()), "a slice of merged dimensions");
    Ok(put_back(zeros, filled, axis, start_of(cx, *size)?))
}

/// The gradient of [`select_bounded`].
pub(crate) fn select_back<'b>(cx: &Cx<'b>, zeros: Value<'b>, axis: usize, size: &Value<'b>) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?.unsqueeze(axis);
    Ok(put_back(zeros, grad, axis, place_in(cx, *size, "index")?))
}

/// `zeros` with `part` from `start` on, which may reach beyond.
fn put_back<'b>(zeros: Value<'b>, part: Value<'b>, axis: usize, start: Value<'b>) -> Value<'b> {
    let zero = zeros.builder().scalar(0, DType::I64);
    let starts: Vec<Value<'b>> = (0..zeros.rank()).map(|i| if i == axis { start } else { zero }).collect();
    let room = zeros.pad_axis(axis, 0, 0, part.dim(axis));
    room.dynamic_update_slice(part, &starts).slice_axis(axis, 0, zeros.dim(axis))
}

/// The reversal of a bounded dimension: what is real lies at the end of the reversed padded one.
pub(crate) fn flip_bounded(x: Value<'_>, axis: usize) -> Value<'_> {
    x.require_prefix(axis, "a reversal of merged dimensions");
    let capacity = x.dim(axis);
    let start = -x.size(axis, DType::I64) + capacity;
    let reversed = x.whole_along(axis).reverse(&[axis]).pad_axis(axis, 0, 0, capacity);
    run_from(reversed, axis, start, capacity).with_extents(x.extents())
}

/// `length` elements of one dimension from `start` on, which the program computes; all of them exist.
pub(crate) fn run_from<'b>(x: Value<'b>, axis: usize, start: Value<'b>, length: i64) -> Value<'b> {
    let zero = x.builder().scalar(0, DType::I64);
    let starts: Vec<Value<'b>> = (0..x.rank()).map(|i| if i == axis { start } else { zero }).collect();
    let mut sizes = x.dims();
    sizes[axis] = length;
    x.whole_along(axis).dynamic_slice(&starts, &sizes)
}

fn select_bounded<'b>(cx: &Cx<'b>, axis: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    x.require_prefix(axis, "a slice of merged dimensions");
    let place = place_in(cx, x.size(axis, DType::I64), "index")?;
    Ok(run_from(x, axis, place, 1).squeeze(axis))
}

/// A part of a bounded dimension: PyTorch says how long it is.
fn slice_bounded<'b>(cx: &Cx<'b>, axis: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let step = cx.int_or_none("step").unwrap_or(1);
    let length = cx.result_dims(0).and_then(|dims| dims.get(axis)).cloned();
    let (Some(length), 1) = (length, step) else {
        return Err(Error::not_implemented("a slice of a bounded dimension in steps"));
    };
    x.require_prefix(axis, "a slice of merged dimensions");
    let start = start_of(cx, x.size(axis, DType::I64))?;
    if length.capacity == x.dim(axis) && length.sizes == x.extent(axis).sizes() {
        return Ok(x); // all of it
    }
    let known = if cx.is_none("start") {
        Some(0)
    } else {
        Some(cx.dim("start")?).filter(|s| s.sizes.is_empty()).map(|s| s.capacity)
    };
    if let Some(start) = known.filter(|start| (0..=x.dim(axis) - length.capacity).contains(start)) {
        return Ok(x.whole_along(axis).slice_axis(axis, start, start + length.capacity));
    }
    // Room behind, so that no start has to give way to the length.
    let room = x.whole_along(axis).pad_axis(axis, 0, 0, length.capacity);
    Ok(run_from(room, axis, start, length.capacity))
}

/// Sizes of which one may be -1.
fn inferred(mut sizes: Vec<i64>, numel: i64) -> Result<Vec<i64>> {
    let known: i64 = sizes.iter().filter(|&&size| size != -1).product();
    for size in &mut sizes {
        if *size == -1 {
            *size = if known == 0 { 0 } else { numel / known };
        }
    }
    if sizes.iter().product::<i64>() != numel {
        return Err(Error::runtime(format!("shape '{sizes:?}' is invalid for input of size {numel}")));
    }
    Ok(sizes)
}

fn split<'b>(x: Value<'b>, axis: usize, sizes: &[i64]) -> Vec<Value<'b>> {
    let mut start = 0;
    let part = |&size: &i64| {
        start += size;
        x.slice_axis(axis, start - size, start)
    };
    sizes.iter().map(part).collect()
}

/// The windows that `unfold` shows: their number, then their elements, in place of dimension `axis`.
pub(crate) fn windows<'b>(b: &'b Builder, sizes: &[i64], axis: usize, size: i64, step: i64) -> Places<'b> {
    let count = (sizes[axis] - size) / step.max(1) + 1;
    let starts = b.iota(DType::I32, &[count.max(0)], 0) * step;
    Places::runs(sizes, axis, starts, size)
}

// ---- views as strides ----------------------------------------------------------------------------

/// The view that a view operator makes of a dense tensor.
pub(crate) type MakeView = fn(&Cx<'_>, TensorSpec) -> Result<TensorSpec>;

/// A dense tensor's view of itself.
pub(crate) fn whole(x: Value<'_>) -> TensorSpec {
    let sizes = x.dims();
    TensorSpec {
        storage: 0,
        dtype: x.dtype(),
        strides: contiguous_strides(&sizes),
        sizes,
        offset: 0,
        is_conj: false,
        is_neg: false,
        offset_input: None,
    }
}

fn read<'b>(cx: &Cx<'b>, make: MakeView) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    Ok(view::read(x, &make(cx, whole(x))?, None))
}

/// `base` with `value` written through a view of it.
pub(crate) fn written<'b>(base: Value<'b>, spec: &TensorSpec, value: Value<'b>) -> Value<'b> {
    let value = value.convert(base.dtype()).broadcast_to(&spec.sizes);
    view::write(Some(base), base.ty().size_bytes(), spec, value, None).reshape(&base.dims())
}

fn from_start(index: i64, size: i64) -> i64 {
    if index < 0 { index + size } else { index }
}

/// `select.int`.
pub(crate) fn selected(cx: &Cx<'_>, mut spec: TensorSpec) -> Result<TensorSpec> {
    let axis = cx.axis_arg("dim", spec.sizes.len())?;
    let size = spec.sizes.get(axis).copied().unwrap_or(0);
    let index = from_start(cx.int("index")?, size);
    if !(0..size).contains(&index) {
        return Err(Error::index(format!("select(): index {index} out of range for a dimension of size {size}")));
    }
    spec.offset += index * spec.strides.remove(axis);
    spec.sizes.remove(axis);
    Ok(spec)
}

/// `slice.Tensor`.
pub(crate) fn sliced(cx: &Cx<'_>, mut spec: TensorSpec) -> Result<TensorSpec> {
    let axis = cx.axis_arg("dim", spec.sizes.len())?;
    let Some(&size) = spec.sizes.get(axis) else {
        return Err(Error::index("slice() cannot be applied to a 0-dim tensor."));
    };
    let step = cx.int_or_none("step").unwrap_or(1).max(1);
    let start = from_start(cx.int_or_none("start").unwrap_or(0), size).clamp(0, size);
    let end = from_start(cx.int_or_none("end").unwrap_or(i64::MAX), size).clamp(start, size);
    spec.offset += start * spec.strides[axis];
    spec.sizes[axis] = (end - start + step - 1) / step;
    spec.strides[axis] *= step;
    Ok(spec)
}

/// `diagonal`.
pub(crate) fn diagonal(cx: &Cx<'_>, spec: TensorSpec) -> Result<TensorSpec> {
    let rank = spec.sizes.len();
    let (a, b) = (cx.axis_arg("dim1", rank)?, cx.axis_arg("dim2", rank)?);
    if a == b || rank < 2 {
        return Err(Error::runtime("diagonal dimensions cannot be identical"));
    }
    Ok(diagonal_of(spec, cx.int("offset")?, a, b))
}

/// The diagonal of two dimensions, as the last dimension.
pub(crate) fn diagonal_of(mut spec: TensorSpec, offset: i64, a: usize, b: usize) -> TensorSpec {
    let (rows, columns) = (spec.sizes[a], spec.sizes[b]);
    let length = if offset >= 0 { rows.min(columns - offset) } else { (rows + offset).min(columns) }.max(0);
    if length > 0 {
        spec.offset += if offset >= 0 { offset * spec.strides[b] } else { -offset * spec.strides[a] };
    }
    let stride = spec.strides[a] + spec.strides[b];
    for axis in [a.max(b), a.min(b)] {
        spec.sizes.remove(axis);
        spec.strides.remove(axis);
    }
    spec.sizes.push(length);
    spec.strides.push(stride);
    spec
}

/// `as_strided`, over the dense tensor's own storage.
pub(crate) fn strided(cx: &Cx<'_>, spec: TensorSpec) -> Result<TensorSpec> {
    let numel: i64 = spec.sizes.iter().product();
    let (sizes, strides) = (cx.ints("size")?, cx.ints("stride")?);
    let offset = cx.int_or_none("storage_offset").unwrap_or(0);
    let reach: i64 = sizes.iter().zip(&strides).map(|(size, stride)| (size - 1) * stride).sum();
    if !sizes.contains(&0) && !(0..numel).contains(&(offset + reach)) {
        return Err(Error::runtime(format!(
            "as_strided: sizes {sizes:?}, strides {strides:?}, storage offset {offset} are out of bounds for a \
             tensor of {numel} elements"
        )));
    }
    Ok(TensorSpec { sizes, strides, offset, ..spec })
}
