//! Views as functions of values, for graphs, and their `_copy` variants. Eager PyTorch creates views without calling
//! the backend, and the lowering reads through them.

use stablehlo::Value;

use crate::common::bounded_views::{self, bounded_axis};
use crate::common::strided_views::{MakeView, diagonal, from_start, selected, sliced, strided, whole, windows};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, many, one};
use crate::view::{self};

pub(crate) const ROWS: &[Row] = &[
    one(&["alias", "detach", "alias_copy", "detach_copy", "resolve_conj", "resolve_neg"], |cx| cx.tensor("self"))
        .bounded(),
    one(&["view", "_unsafe_view", "view_copy", "_reshape_alias", "_reshape_copy"], |cx| reshaped(cx, "size")).bounded(),
    one(&["reshape"], |cx| reshaped(cx, "shape")).bounded(),
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
        let repeated = (0..sizes.len()).filter(|&i| i < added || x.dim(i - added) == 1);
        Ok(cx.uniform(x.broadcast_to(&sizes), repeated))
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
        Some(axis) => bounded_views::select(cx, axis),
        None => read(cx, selected),
    })
    .bounded(),
    one(&["slice.Tensor", "slice_copy.Tensor"], |cx| match bounded_axis(cx)? {
        Some(axis) => bounded_views::slice(cx, axis),
        None => read(cx, sliced),
    })
    .bounded(),
    one(&["narrow_copy"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        let start = from_start(cx.int("start")?, x.dim(axis));
        Ok(x.slice_axis(axis, start, start + cx.int("length")?))
    }),
    one(&["diagonal", "diagonal_copy"], |cx| match cx.b().is_bounded() {
        true => bounded_views::diagonal(cx),
        false => read(cx, diagonal),
    })
    .bounded(),
    one(&["as_strided", "as_strided_copy"], |cx| read(cx, strided)),
    one(&["unfold", "unfold_copy"], |cx| {
        let x = cx.tensor("self")?;
        let x = x.zero_filled(0..x.rank(), "windows over merged dimensions");
        let (size, step) = (cx.int("size")?, cx.int("step")?);
        if x.rank() == 0 {
            return Ok(x.broadcast_to(&[size]));
        }
        let axis = cx.axis_arg("dimension", x.rank())?;
        let windows = windows(cx.b(), &x.dims(), axis, size, step).read(x);
        Ok(cx.resized(0, windows.move_axis(axis + 1, x.rank())))
    })
    .bounded(),
    many(&["split.Tensor", "split_copy.Tensor"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        if bounded_views::is_split(cx, x, axis) {
            return Ok(bounded_views::split(cx, x, axis, &[cx.dim("split_size")?]));
        }
        let size = x.dim(axis);
        let part = cx.int("split_size")?;
        let count = if part == 0 { 1 } else { ((size + part - 1) / part).max(1) };
        let sizes: Vec<i64> = (0..count).map(|i| part.min(size - i * part)).collect();
        Ok(split(x, axis, &sizes))
    })
    .bounded(),
    many(&["split_with_sizes", "split_with_sizes_copy"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        if bounded_views::is_split(cx, x, axis) {
            return Ok(bounded_views::split(cx, x, axis, &cx.dims("split_sizes")?));
        }
        Ok(split(x, axis, &cx.ints("split_sizes")?))
    })
    .bounded(),
    many(&["unbind.int", "unbind_copy.int"], |cx| {
        let x = cx.tensor("self")?;
        let axis = cx.axis_arg("dim", x.rank())?;
        Ok((0..x.dim(axis)).map(|i| x.select_axis(axis, i)).collect())
    })
    .bounded(),
    one(&["view_as_real", "view_as_real_copy"], |cx| Ok(view::parts_of(cx.tensor("self")?))).bounded(),
    one(&["view_as_complex", "view_as_complex_copy"], |cx| Ok(view::of_parts(cx.tensor("self")?))).bounded(),
    one(&["real"], |cx| Ok(cx.tensor("self")?.real())).bounded(),
    one(&["imag"], |cx| Ok(cx.tensor("self")?.imag())).bounded(),
    one(&["_conj", "_conj_copy"], |cx| {
        let x = cx.tensor("self")?;
        Ok(if x.dtype().is_complex() { x.real().complex(-x.imag()) } else { x })
    })
    .bounded(),
    one(&["_neg_view", "_neg_view_copy"], |cx| Ok(-cx.tensor("self")?)).bounded(),
];

fn reshaped<'b>(cx: &Cx<'b>, sizes: &str) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    if let Some(dims) = cx.result_dims(0).filter(|dims| !bounded_views::keeps_positions(x, dims)) {
        return Ok(bounded_views::reshape(cx, x, dims));
    }
    Ok(x.reshape(&inferred(cx.capacities(sizes)?, x.numel())?))
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

// ---- views as strides ----------------------------------------------------------------------------

fn read<'b>(cx: &Cx<'b>, make: MakeView) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    Ok(view::read(x, &make(cx, whole(x))?, None))
}
