//! Padding and its gradients.

use stablehlo::Value;

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::table::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["constant_pad_nd"], |cx| {
        let x = cx.tensor("self")?;
        let (mut low, mut high) = (vec![0; x.rank()], vec![0; x.rank()]);
        for (axis, before, after) in amounts(cx, "pad", x.rank())? {
            (low[axis], high[axis]) = (before, after);
        }
        let fill = cx.scalar("value", x.dtype())?;
        let bounded: Vec<usize> =
            (0..x.rank()).filter(|&i| (low[i], high[i]) != (0, 0) && x.is_bounded_along(&[i])).collect();
        // What lies behind the real part of a bounded dimension is the fill already.
        let x = bounded.iter().fold(x, |x, &axis| x.filled_along(axis, fill, "padding of merged dimensions"));
        Ok(x.pad_with(fill, &low, &high, &vec![0; x.rank()]))
    })
    .bounded(),
    one(&["reflection_pad1d", "reflection_pad2d", "reflection_pad3d"], |cx| forward(cx, Edge::Reflect)),
    one(&["replication_pad1d", "replication_pad2d", "replication_pad3d"], |cx| forward(cx, Edge::Replicate)),
    one(&["reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"], |cx| {
        backward(cx, Edge::Reflect)
    }),
    one(&["replication_pad1d_backward", "replication_pad2d_backward", "replication_pad3d_backward"], |cx| {
        backward(cx, Edge::Replicate)
    }),
];

/// What lies beyond the first and last element.
#[derive(Clone, Copy)]
enum Edge {
    /// The elements before it, mirrored.
    Reflect,
    /// The element itself.
    Replicate,
}

/// Dimensions with what is added before and after (negative: cut). PyTorch lists the last dimension first.
fn amounts(cx: &Cx<'_>, name: &str, rank: usize) -> Result<Vec<(usize, i64, i64)>> {
    let pads = cx.ints(name)?;
    if pads.len() % 2 != 0 || pads.len() / 2 > rank {
        return Err(Error::runtime(format!("padding {pads:?} does not suit a tensor of {rank} dimensions")));
    }
    Ok(pads.chunks(2).enumerate().map(|(i, pair)| (rank - 1 - i, pair[0], pair[1])).collect())
}

fn forward<'b>(cx: &Cx<'b>, edge: Edge) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let pads = amounts(cx, "padding", x.rank())?;
    Ok(pads.into_iter().fold(x, |x, (axis, before, after)| extend(x, axis, before, after, edge)))
}

fn extend(x: Value<'_>, axis: usize, before: i64, after: i64, edge: Edge) -> Value<'_> {
    let size = x.dim(axis);
    let beyond = |count: i64, mirrored: i64, repeated: i64| match edge {
        Edge::Reflect => x.slice_axis(axis, mirrored, mirrored + count).reverse(&[axis]),
        Edge::Replicate => {
            let mut dims = x.dims();
            dims[axis] = count;
            x.slice_axis(axis, repeated, repeated + 1).broadcast_to(&dims)
        }
    };
    let mut parts = vec![x.slice_axis(axis, (-before).max(0), size - (-after).max(0))];
    if before > 0 {
        parts.insert(0, beyond(before, 1, 0));
    }
    if after > 0 {
        parts.push(beyond(after, size - 1 - after, size - 1));
    }
    x.builder().concatenate(&parts, axis)
}

/// The gradient of what was added goes to the elements that it was taken from.
fn backward<'b>(cx: &Cx<'b>, edge: Edge) -> Result<Value<'b>> {
    let dims = cx.ty("self")?.dims;
    let grad = cx.tensor("grad_output")?;
    let pads = amounts(cx, "padding", dims.len())?;
    let wide = grad.convert(grad.dtype().opmath());
    let folded = pads.into_iter().fold(wide, |g, (axis, before, after)| fold(g, axis, before, after, dims[axis], edge));
    Ok(folded.convert(grad.dtype()))
}

fn fold(grad: Value<'_>, axis: usize, before: i64, after: i64, size: i64, edge: Edge) -> Value<'_> {
    let end = grad.dim(axis);
    let inner = grad.slice_axis(axis, before.max(0), end - after.max(0));
    let mut folded = inner.pad_axis(axis, 0, (-before).max(0), (-after).max(0));
    // (what was added, the first of the elements that it mirrors, the element that it repeats)
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
