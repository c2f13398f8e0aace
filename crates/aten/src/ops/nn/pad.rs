//! Padding and its gradients.

use std::fmt::Debug;

use stablehlo::{DType, Value};

use crate::common::bounded_views;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, Setting, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[
    one(&["constant_pad_nd"], |cx| {
        let x = cx.tensor("self")?;
        let fill = cx.scalar("value", x.dtype())?;
        if let Some(dims) = cx.result_dims(0) {
            return with_sizes(cx, x, dims, fill);
        }
        if cx.is_input("pad") {
            let dims: Vec<Dim> = cx.result_type(x.dtype())?.dims.into_iter().map(Dim::known).collect();
            return with_sizes(cx, x, &dims, fill);
        }
        let (mut low, mut high) = (vec![0; x.rank()], vec![0; x.rank()]);
        for (axis, before, after) in by_axis(&cx.ints("pad")?, x.rank())? {
            (low[axis], high[axis]) = (before, after);
        }
        Ok(x.pad_with(fill, &low, &high, &vec![0; x.rank()]))
    })
    .varies(&["pad"], class_of_pads)
    .bounded(),
    one(&["reflection_pad1d", "reflection_pad2d", "reflection_pad3d"], |cx| forward(cx, Edge::Reflect)).bounded(),
    one(&["replication_pad1d", "replication_pad2d", "replication_pad3d"], |cx| forward(cx, Edge::Replicate)).bounded(),
    one(&["reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"], |cx| {
        backward(cx, Edge::Reflect)
    })
    .bounded(),
    one(&["replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"], |cx| {
        backward(cx, Edge::Replicate)
    })
    .bounded(),
];

/// How elements outside the input are chosen.
#[derive(Clone, Copy)]
enum Edge {
    /// Mirrors the elements at the edge.
    Reflect,
    /// Repeats the element at the edge.
    Replicate,
}

/// Dimensions with their padding before and after (negative: sliced off). PyTorch lists the last dimension first.
fn by_axis<T: Clone + Debug>(pads: &[T], rank: usize) -> Result<Vec<(usize, T, T)>> {
    if pads.len() % 2 != 0 || pads.len() / 2 > rank {
        return Err(Error::runtime(format!("padding {pads:?} does not suit a tensor of {rank} dimensions")));
    }
    Ok(pads.chunks(2).enumerate().map(|(i, pair)| (rank - 1 - i, pair[0].clone(), pair[1].clone())).collect())
}

/// Paddings of the same class give the same sizes, other than those of the tensor in each dimension that they change.
/// Programs with sizes as inputs do not depend on the padding at the end, so without padding at the start there is no class.
fn class_of_pads(pads: &[i64], setting: &Setting<'_>) -> Option<Vec<i64>> {
    let (mut sizes, mut has_start) = (setting.sizes.to_vec(), false);
    for (axis, before, after) in by_axis(pads, sizes.len()).ok()? {
        let size = sizes[axis].checked_add(before)?.checked_add(after)?;
        let fits = size > 0 && (-sizes[axis]..=size).contains(&before);
        if !fits || (before != 0 && size == sizes[axis]) {
            return None;
        }
        sizes[axis] = size;
        has_start |= before != 0;
    }
    has_start.then_some(sizes)
}

/// The padding at one side of a dimension.
#[derive(Clone, Copy, Debug)]
enum Pad<'b> {
    Known(i64),
    /// Int64, 0-d.
    Input(Value<'b>),
}

fn pads<'b>(cx: &Cx<'b>) -> Result<Vec<Pad<'b>>> {
    match cx.dims("pad") {
        Ok(dims) => Ok(dims
            .iter()
            .map(|dim| if dim.sizes.is_empty() { Pad::Known(dim.capacity) } else { Pad::Input(cx.size_of(dim)) })
            .collect()),
        Err(_) => {
            let all = cx.vector("pad")?;
            Ok((0..all.dim(0)).map(|i| Pad::Input(all.select_axis(0, i))).collect())
        }
    }
}

/// `constant_pad_nd` if sizes of the tensor or of the padding are inputs. `dims` are the sizes of the result.
fn with_sizes<'b>(cx: &Cx<'b>, x: Value<'b>, dims: &[Dim], fill: Value<'b>) -> Result<Value<'b>> {
    let mut result = x;
    for (axis, before, after) in by_axis(&pads(cx)?, x.rank())? {
        let length = dims[axis].capacity;
        let is_whole = dims[axis].sizes.is_empty() && !x.is_bounded_along(&[axis]);
        let is_same = match (before, after) {
            (Pad::Known(before), Pad::Known(after)) => (before, after) == (0, 0),
            _ => is_whole && length == x.dim(axis),
        };
        if is_same {
            continue;
        }
        // Fills the bounded dimension's own padding with the fill value.
        result = result.filled([axis], |_| fill, "padding of merged dimensions");
        let mut room = (vec![0; x.rank()], vec![0; x.rank()]);
        match before {
            Pad::Known(before) => {
                (room.0[axis], room.1[axis]) = (before, length - before - result.dim(axis));
                result = result.pad_with(fill, &room.0, &room.1, &vec![0; x.rank()]);
            }
            Pad::Input(before) => {
                // The padding before may be negative; elements are then sliced off.
                (room.0[axis], room.1[axis]) = (length, length);
                let padded = result.pad_with(fill, &room.0, &room.1, &vec![0; x.rank()]);
                result = bounded_views::run_from(padded, axis, -before + length, length);
            }
        }
    }
    Ok(result)
}

fn forward<'b>(cx: &Cx<'b>, edge: Edge) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let pads = by_axis(&cx.ints("padding")?, x.rank())?;
    let padded = pads.into_iter().fold(x, |x, (axis, before, after)| extend(x, axis, before, after, edge));
    Ok(cx.resized_like(0, padded, x))
}

fn extend(x: Value<'_>, axis: usize, before: i64, after: i64, edge: Edge) -> Value<'_> {
    if x.is_bounded_along(&[axis]) {
        return extend_bounded(x, axis, before, after, edge);
    }
    let size = x.dim(axis);
    let beyond = |count: i64, mirrored: i64, repeated: i64| match edge {
        Edge::Reflect => x.slice_axis(axis, mirrored, mirrored + count).reverse(&[axis]),
        Edge::Replicate => {
            let mut dims = x.dims();
            dims[axis] = count;
            x.slice_axis(axis, repeated, repeated + 1).broadcast_to(&dims)
        }
    };
    let mut parts = vec![x];
    if before > 0 {
        parts.insert(0, beyond(before, 1, 0));
    }
    if after > 0 {
        parts.push(beyond(after, size - 1 - after, size - 1));
    }
    let extended = x.builder().concatenate(&parts, axis);
    // A negative size can remove what is added at the other end, too.
    extended.slice_axis(axis, (-before).max(0), extended.dim(axis) - (-after).max(0))
}

/// [`extend`] of a bounded dimension. The program computes the position of its end.
fn extend_bounded<'b>(x: Value<'b>, axis: usize, before: i64, after: i64, edge: Edge) -> Value<'b> {
    x.require_prefix(axis, "padding of merged dimensions");
    let (size, whole) = (x.size(axis, DType::I64), x.whole_along(axis));
    let extended = if before > 0 { extend(whole, axis, before, 0, edge) } else { whole };
    // A negative size before can remove what is added after.
    let without_start = |y: Value<'b>| y.slice_axis(axis, (-before).max(0), y.dim(axis));
    if after <= 0 {
        return without_start(extended.pad_axis(axis, 0, 0, after));
    }
    let mut dims = whole.dims();
    dims[axis] = after;
    let end = match edge {
        Edge::Reflect => bounded_views::run_from(whole, axis, size - (1 + after), after).reverse(&[axis]),
        Edge::Replicate => bounded_views::run_from(whole, axis, size - 1, 1).broadcast_to(&dims),
    };
    let room = extended.pad_axis(axis, 0, 0, after);
    without_start(bounded_views::write_at(room, end, axis, size + before.max(0)))
}

/// The gradient of each padded element is added to the element that it was copied from.
fn backward<'b>(cx: &Cx<'b>, edge: Edge) -> Result<Value<'b>> {
    let dims = cx.ty("self")?.dims;
    let grad = cx.tensor("grad_output")?;
    let pads = by_axis(&cx.ints("padding")?, dims.len())?;
    let wide = grad.convert(grad.dtype().opmath());
    let folded = pads.into_iter().fold(wide, |g, (axis, before, after)| fold(g, axis, before, after, dims[axis], edge));
    Ok(folded.convert(grad.dtype()))
}

/// The gradient with zeros for the elements that negative sizes removed, and the sizes without these.
fn with_removed(grad: Value<'_>, axis: usize, before: i64, after: i64) -> (Value<'_>, i64, i64) {
    (grad.pad_axis(axis, 0, (-before).max(0), (-after).max(0)), before.max(0), after.max(0))
}

/// [`fold`] of a bounded dimension.
fn fold_bounded(grad: Value<'_>, axis: usize, before: i64, after: i64, size: i64, edge: Edge) -> Value<'_> {
    let (real, zero) = (grad.size(axis, DType::I64), grad.builder().scalar(0, grad.dtype()));
    let grad = grad.filled_along(axis, zero, "padding of merged dimensions");
    let end = real + (-before).max(0) - after;
    let (grad, before, after) = with_removed(grad, axis, before, after);
    // Folds as if nothing were padded after. The padding after the end is handled separately below.
    let folded = fold(grad.pad_axis(axis, 0, 0, before + size - grad.dim(axis)), axis, before, 0, size, edge);
    if after == 0 {
        return folded;
    }
    let added = bounded_views::run_from(grad, axis, end, after);
    let (part, first) = match edge {
        Edge::Reflect => (added.reverse(&[axis]), end - (before + 1 + after)),
        Edge::Replicate => (added.reduce_sum(&[axis]).unsqueeze(axis), end - (before + 1)),
    };
    let zeros = grad.builder().splat(0, grad.dtype(), &folded.dims());
    folded + bounded_views::write_at(zeros, part, axis, first)
}

fn fold(grad: Value<'_>, axis: usize, before: i64, after: i64, size: i64, edge: Edge) -> Value<'_> {
    if grad.is_bounded_along(&[axis]) {
        return fold_bounded(grad, axis, before, after, size, edge);
    }
    let (grad, before, after) = with_removed(grad, axis, before, after);
    let end = grad.dim(axis);
    if end != before + size + after {
        grad.builder().refuse_bounded("a gradient of a padded input without its padding");
    }
    let mut folded = grad.slice_axis(axis, before, end - after);
    // (the padded elements: start, limit; the first element that they mirror; the element that they repeat)
    let ends = [(0, before, 1, 0), (end - after, end, size - 1 - after, size - 1)];
    for (start, limit, mirrored, repeated) in ends {
        if start >= limit {
            continue;
        }
        let added = grad.slice_axis(axis, start, limit);
        let (part, first) = match edge {
            Edge::Reflect => (added.reverse(&[axis]), mirrored),
            Edge::Replicate => (added.reduce_sum(&[axis]).unsqueeze(axis), repeated),
        };
        folded = folded + part.pad_axis(axis, 0, first, size - first - part.dim(axis));
    }
    folded
}
