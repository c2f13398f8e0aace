//! Operators that copy, join and rearrange elements.

use stablehlo::{Builder, DType, Value};

use crate::common::bounded_views;
use crate::common::strided_views::{self, MakeView, diagonal_of, whole, written};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Combine;
use crate::promote::promote_types;
use crate::row::{Row, one};
use crate::spec::Dim;
use crate::view;

pub(crate) const ROWS: &[Row] = &[
    one(&["copy"], |cx| {
        let ty = cx.ty("self")?;
        Ok(cx.operand("src", ty.dtype)?.broadcast_to(&ty.dims))
    })
    .open_offsets()
    .bounded(),
    one(&["clone", "contiguous", "lift", "lift_fresh", "lift_fresh_copy"], |cx| cx.tensor("self"))
        .open_offsets()
        .bounded(),
    one(&["_to_copy"], |cx| {
        let x = cx.tensor("self")?;
        Ok(x.convert(cx.dtype_or_none("dtype").unwrap_or(x.dtype())))
    })
    .bounded(),
    one(&["cat"], |cx| {
        let values = alike(&cx.tensors("tensors")?);
        // A vector of size 0 concatenates with anything, a legacy rule that PyTorch keeps.
        let joined: Vec<Value<'_>> = values.iter().copied().filter(|v| v.dims() != [0]).collect();
        match (values.first(), joined.first()) {
            (Some(empty), None) => Ok(*empty),
            (_, first) => {
                let axis = cx.axis_arg("dim", first.map_or(1, |v| v.rank()))?;
                let bounded = joined.iter().any(|v| v.is_bounded_along(&[axis]));
                Ok(cx.resized(
                    0,
                    match bounded {
                        true => bounded_views::join(cx.b(), &joined, axis),
                        false => cx.b().concatenate(&joined, axis),
                    },
                ))
            }
        }
    })
    .own_inputs()
    .bounded()
    .grows(),
    one(&["block_diag"], block_diag),
    one(&["flip"], |cx| {
        let x = cx.tensor("self")?;
        let axes = if cx.ints("dims")?.is_empty() { Vec::new() } else { cx.axes_arg("dims", x.rank())? };
        let (bounded, whole) = axes.into_iter().partition(|&axis| x.is_bounded_along(&[axis]));
        Ok(Vec::<usize>::into_iter(bounded).fold(x.reverse(&whole), bounded_views::flip))
    })
    .bounded(),
    one(&["roll"], roll).varies(&["shifts"], |_, _| Some(Vec::new())).bounded(),
    one(&["repeat"], repeat).bounded(),
    one(&["tril"], |cx| masked(cx, Triangle::Lower)).inputs(&["diagonal"]).bounded(),
    one(&["triu"], |cx| masked(cx, Triangle::Upper)).inputs(&["diagonal"]).bounded(),
    one(&["tril_indices"], |cx| indices(cx, Triangle::Lower))
        .varies(&["row", "col", "offset"], |n, _| size_of_triangle(Triangle::Lower, n))
        .bounded(),
    one(&["triu_indices"], |cx| indices(cx, Triangle::Upper))
        .varies(&["row", "col", "offset"], |n, _| size_of_triangle(Triangle::Upper, n))
        .bounded(),
    one(&["trace"], |cx| {
        let x = cx.tensor("self")?;
        let exact = x.dtype().is_integer() || x.dtype() == DType::Bool;
        let wide = if exact { DType::I64 } else { x.dtype().opmath() };
        if x.is_bounded() {
            (0..2).for_each(|axis| x.require_prefix(axis, "a diagonal of merged dimensions"));
            let on_diagonal = cx.b().iota(DType::I32, &x.dims(), 0).eq(cx.b().iota(DType::I32, &x.dims(), 1));
            return Ok(on_diagonal.select(x.convert(wide), 0).reduce_sum(&[0, 1]));
        }
        let diagonal = view::read(x, &diagonal_of(whole(x), 0, 0, 1), None);
        Ok(diagonal.convert(wide).reduce_sum(&[0]))
    })
    .bounded(),
    one(&["diag_embed"], diag_embed).bounded(),
    one(&["slice_scatter"], |cx| match cx.b().is_bounded() {
        true => bounded_views::scatter(cx, false),
        false if cx.is_input("start") => replaced_at_input(cx, cx.tensor("self")?, "src", "start"),
        false => replaced(cx, cx.tensor("self")?, "src", strided_views::sliced),
    })
    .varies(&["start", "end", "step"], |n, setting| match *n {
        [start, end, 1] if start >= 0 && end > start && end <= setting.size()? => Some(vec![end - start]),
        _ => None,
    })
    .bounded(),
    one(&["select_scatter"], |cx| match cx.b().is_bounded() {
        true => bounded_views::scatter(cx, true),
        false if cx.is_input("index") => replaced_at_input(cx, cx.tensor("self")?, "src", "index"),
        false => replaced(cx, cx.tensor("self")?, "src", strided_views::selected),
    })
    .varies(&["index"], |n, setting| (0..setting.size()?).contains(&n[0]).then(Vec::new))
    .bounded(),
    one(&["diagonal_scatter"], |cx| replaced(cx, cx.tensor("self")?, "src", strided_views::diagonal)),
    one(&["as_strided_scatter"], |cx| replaced(cx, cx.tensor("self")?, "src", strided_views::strided)),
    one(&["slice_backward"], |cx| match bounded_views::bounded_input(cx)? {
        Some((axis, size)) => bounded_views::slice_back(cx, zeros(cx)?, axis, &size),
        None if cx.is_input("start") => replaced_at_input(cx, zeros(cx)?, "grad_output", "start"),
        None => replaced(cx, zeros(cx)?, "grad_output", strided_views::sliced),
    })
    // The length is that of the gradient.
    .varies(&["start", "end", "step"], |n, _| (n[0] >= 0 && n[1] > n[0] && n[2] == 1).then(Vec::new))
    .bounded(),
    one(&["select_backward"], |cx| match bounded_views::bounded_input(cx)? {
        Some((axis, size)) => bounded_views::select_back(cx, zeros(cx)?, axis, &size),
        None if cx.is_input("index") => replaced_at_input(cx, zeros(cx)?, "grad_output", "index"),
        None => replaced(cx, zeros(cx)?, "grad_output", strided_views::selected),
    })
    .varies(&["index"], |n, _| (n[0] >= 0).then(Vec::new))
    .bounded(),
    one(&["diagonal_backward"], |cx| match cx.b().is_bounded() {
        true => bounded_views::embed_diagonal(cx, cx.tensor("grad_output")?, &cx.capacities("input_sizes")?),
        false => replaced(cx, zeros(cx)?, "grad_output", strided_views::diagonal),
    })
    .bounded(),
    one(&["unfold_backward"], unfold_backward).bounded(),
    one(&["pixel_shuffle"], |cx| {
        let (x, factor) = (cx.tensor("self")?, cx.int("upscale_factor")?);
        let (batch, [channels, height, width]) = image(x)?;
        let channels = channels / (factor * factor);
        let split = x.reshape(&[batch, channels, factor, factor, height, width]);
        let sizes = [channels, height * factor, width * factor];
        Ok(split.transpose(&[0, 1, 4, 2, 5, 3]).reshape(&with_image(x, sizes)))
    })
    .bounded(),
    one(&["pixel_unshuffle"], pixel_unshuffle).bounded(),
    one(&["channel_shuffle", "native_channel_shuffle"], |cx| {
        let (x, groups) = (cx.tensor("self")?, cx.int("groups")?);
        let dims = x.dims();
        let split = x.reshape(&[dims[0], groups, dims[1] / groups, dims[2..].iter().product()]);
        Ok(split.swap_axes(1, 2).reshape(&dims))
    })
    .bounded(),
];

fn pixel_unshuffle<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (x, factor) = (cx.tensor("self")?, cx.int("downscale_factor")?);
    // A side that changes has padding behind it, so its parts have padding behind them, too.
    let whole = (x.rank().saturating_sub(2)..x.rank()).fold(x, |whole, axis| match x.extent(axis).0.len() {
        1 => whole.whole_along(axis).pad_axis(axis, 0, 0, (-x.dim(axis)).rem_euclid(factor)),
        _ => whole,
    });
    let (batch, [channels, height, width]) = image(whole)?;
    let (height, width) = (height / factor, width / factor);
    let split = whole.reshape(&[batch, channels, height, factor, width, factor]);
    let sizes = [channels * factor * factor, height, width];
    Ok(cx.resized_like(0, split.transpose(&[0, 1, 3, 5, 2, 4]).reshape(&with_image(x, sizes)), x))
}

// ---- joining and repeating -----------------------------------------------------------------------

/// Values converted to their common type.
fn alike<'b>(values: &[Value<'b>]) -> Vec<Value<'b>> {
    let dtype = values.iter().map(|v| v.dtype()).reduce(promote_types);
    values.iter().map(|v| v.convert(dtype.unwrap_or(v.dtype()))).collect()
}

fn block_diag<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let blocks: Vec<Value<'b>> = alike(&cx.tensors("tensors")?)
        .into_iter()
        .map(|v| match v.dims()[..] {
            [] => v.reshape(&[1, 1]),
            [n] => v.reshape(&[1, n]),
            _ => v,
        })
        .collect();
    let width: i64 = blocks.iter().map(|block| block.dim(1)).sum();
    let mut start = 0;
    let bands: Vec<Value<'b>> = blocks
        .iter()
        .map(|block| {
            let before = start;
            start += block.dim(1);
            block.pad_axis(1, 0, before, width - start)
        })
        .collect();
    Ok(cx.b().concatenate(&bands, 0))
}

fn roll<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (x, dims) = (cx.tensor("self")?, cx.ints("dims")?);
    if cx.is_input("shifts") {
        let shifts = cx.vector("shifts")?;
        let shift = |i: usize| shifts.select_axis(0, i as i64);
        if dims.is_empty() {
            if x.is_bounded() {
                cx.b().refuse_bounded("a roll of merged dimensions");
            }
            return Ok(rolled_by_input(x.flatten(), 0, shift(0)).reshape(&x.dims()));
        }
        let mut axes = dims.iter().map(|&dim| cx.axis(dim, x.rank())).enumerate().filter(|_| x.rank() > 0);
        return axes.try_fold(x, |x, (i, axis)| {
            let axis = axis?;
            Ok(match x.is_bounded_along(&[axis]) {
                true => roll_bounded(x, axis, shift(i)),
                false => rolled_by_input(x, axis, shift(i)),
            })
        });
    }
    let shifts = cx.ints("shifts")?;
    if dims.is_empty() {
        let shift = shifts.first().copied().unwrap_or(0);
        return Ok(rolled(x.flatten(), 0, shift).reshape(&x.dims()));
    }
    let mut result = x;
    for (&shift, &dim) in shifts.iter().zip(&dims) {
        let axis = cx.axis(dim, x.rank())?;
        if x.is_bounded_along(&[axis]) {
            result = roll_bounded(result, axis, cx.b().scalar(shift, DType::I64));
        } else if x.rank() > 0 {
            result = rolled(result, axis, shift);
        }
    }
    Ok(result)
}

fn rolled(x: Value<'_>, axis: usize, shift: i64) -> Value<'_> {
    let size = x.dim(axis);
    if size == 0 || shift % size == 0 {
        return x;
    }
    let cut = size - shift.rem_euclid(size);
    x.builder().concatenate(&[x.slice_axis(axis, cut, size), x.slice_axis(axis, 0, cut)], axis)
}

fn rolled_by_input<'b>(x: Value<'b>, axis: usize, shift: Value<'b>) -> Value<'b> {
    let size = x.dim(axis);
    if size == 0 {
        return x;
    }
    let twice = x.builder().concatenate(&[x, x], axis);
    bounded_views::run_from(twice, axis, (-(shift % size) + size) % size, size)
}

/// Concatenates the bounded dimension with itself and takes a slice that starts at the shift.
fn roll_bounded<'b>(x: Value<'b>, axis: usize, shift: Value<'b>) -> Value<'b> {
    let twice = bounded_views::join(x.builder(), &[x, x], axis);
    let size = x.size(axis, DType::I64);
    // `max(1)`, because the remainder by zero is undefined.
    let start = ((-shift % size.max(1)) + size) % size.max(1);
    bounded_views::run_from(twice, axis, start, x.dim(axis)).with_extents(x.extents())
}

fn repeat<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let counts = cx.dims("repeats")?;
    let repeats = Dim::capacities(&counts);
    let added = repeats.len().saturating_sub(x.rank());
    let mut sizes = vec![1; added];
    sizes.extend(x.dims());
    // Inserts a dimension for the repeats before each dimension.
    let spread: Vec<i64> = repeats.iter().zip(&sizes).flat_map(|(&repeat, &size)| [repeat, size]).collect();
    let own: Vec<usize> = (0..sizes.len()).map(|i| 2 * i + 1).collect();
    let total: Vec<i64> = repeats.iter().zip(&sizes).map(|(repeat, size)| repeat * size).collect();
    let repeated = x.reshape(&sizes).broadcast_in_dim(&spread, &own);
    let mut extents = repeated.extents();
    for (i, count) in counts.iter().enumerate().filter(|(_, count)| !count.sizes.is_empty()) {
        extents[2 * i] = count.extent(|size| cx.b().capacity(size));
    }
    Ok(repeated.without_extents().with_extents(extents).reshape(&total))
}

// ---- triangles and diagonals ---------------------------------------------------------------------

/// The part of a matrix on one side of a diagonal, with the diagonal.
#[derive(Clone, Copy)]
enum Triangle {
    Lower,
    Upper,
}

impl Triangle {
    /// A mask of the elements in the triangle. `offset` (0-d, int64) is the distance of the diagonal to the right of the
    /// main one.
    fn mask<'b>(self, b: &'b Builder, rows: i64, columns: i64, offset: Value<'b>) -> Value<'b> {
        let (dims, dtype) = ([rows, columns], DType::of_counts(rows.saturating_add(columns)));
        let offset = offset.max(-rows).min(columns).convert(dtype);
        let diagonal = b.iota(dtype, &dims, 0) + offset.broadcast_to(&dims);
        let column = b.iota(dtype, &dims, 1);
        match self {
            Triangle::Lower => column.le(diagonal),
            Triangle::Upper => column.ge(diagonal),
        }
    }

    /// The number of elements in the triangle.
    fn count(self, rows: i64, columns: i64, offset: i64) -> i64 {
        let [rows, columns, offset] = [rows, columns, offset].map(i128::from);
        // The elements before column `row + first`, over all rows.
        let before = |first: i128| {
            let (none, all) = ((-first).clamp(0, rows), (columns - first).clamp(0, rows));
            (all - none) * (none + all - 1 + 2 * first) / 2 + (rows - all) * columns
        };
        let count = match self {
            Triangle::Lower => before(offset + 1),
            Triangle::Upper => rows * columns - before(offset),
        };
        i64::try_from(count).unwrap_or(i64::MAX)
    }
}

fn masked<'b>(cx: &Cx<'b>, part: Triangle) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let &[.., rows, columns] = x.dims().as_slice() else {
        return Err(Error::runtime("tril and triu need a tensor of at least 2 dimensions"));
    };
    let rank = x.rank();
    (rank - 2..rank).for_each(|axis| x.require_prefix(axis, "a triangle of merged dimensions"));
    Ok(part.mask(cx.b(), rows, columns, cx.scalar("diagonal", DType::I64)?).select(x, 0))
}

/// The number of elements of a triangle, which a program depends on.
fn size_of_triangle(part: Triangle, ints: &[i64]) -> Option<Vec<i64>> {
    let &[rows, columns, offset] = ints else { return None };
    Some(vec![part.count(rows, columns, offset)])
}

/// The rows and columns of the elements of a triangle, as a matrix with two rows.
///
/// The rows of a lower triangle have one element more than the one before, `first + t` in the t-th, until they have one in
/// each column. The t-th begins at the element t * first + t * (t - 1) / 2, so t is a root of a quadratic polynomial. An
/// upper triangle is a lower one from its last element to its first.
fn indices<'b>(cx: &Cx<'b>, part: Triangle) -> Result<Value<'b>> {
    let int = |name| cx.scalar(name, DType::I64);
    let (rows, columns) = (int("row")?, int("col")?);
    let offset = int("offset")?.max(-rows).min(columns);
    let length = match (cx.result_dims(0), cx.result(0)) {
        (Some([_, length]), _) => length.clone(),
        (_, Some(result)) => Dim::known(result.sizes[1]),
        _ => Dim::known(part.count(cx.int("row")?, cx.int("col")?, cx.int("offset")?)),
    };
    let index = cx.b().iota(DType::I64, &[length.capacity], 0);
    let (index, offset) = match part {
        Triangle::Lower => (index, offset),
        Triangle::Upper => (-index + (cx.size_of(&length) - 1), columns - rows - offset),
    };
    let each = |x: Value<'b>| x.broadcast_to(&index.dims());
    let above = (-offset).max(0);
    let first = (offset + above + 1).min(columns);
    let growing = (columns - first + 1).min(rows - above);
    let start_of = |row: Value<'b>| row * each(first) + row * (row - 1) / 2;
    let slope = each(first * 2 - 1).convert(DType::F64);
    let root = ((slope * slope + index.convert(DType::F64) * 8.0).sqrt() - slope) / 2.0;
    // The root is rounded.
    let row = root.floor().convert(DType::I64).max(0);
    let row = row - start_of(row).gt(index).convert(DType::I64);
    let row = row + start_of(row + 1).le(index).convert(DType::I64);
    let behind = index - start_of(each(growing));
    let width = each(columns.max(1));
    let is_growing = behind.lt(0);
    let column = is_growing.select(index - start_of(row), behind % width);
    let row = is_growing.select(row, each(growing) + behind / width) + each(above);
    let (row, column) = match part {
        Triangle::Lower => (row, column),
        Triangle::Upper => (each(rows - 1) - row, each(columns - 1) - column),
    };
    let lines = cx.b().concatenate(&[row.unsqueeze(0), column.unsqueeze(0)], 0);
    let lines = lines.with_extent(1, length.extent(|size| cx.b().capacity(size)));
    Ok(lines.convert(cx.dtype_or_none("dtype").unwrap_or(DType::I64)))
}

fn diag_embed<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    if cx.b().is_bounded() {
        let Some(dims) = cx.result_dims(0) else {
            return Err(Error::not_implemented("diag_embed of unknown sizes"));
        };
        return bounded_views::embed_diagonal(cx, x, &Dim::capacities(dims));
    }
    let rank = x.rank() + 1;
    let offset = cx.int("offset")?;
    let (a, b) = (cx.axis_arg("dim1", rank)?, cx.axis_arg("dim2", rank)?);
    let Some(&length) = x.dims().last() else {
        return Err(Error::runtime("diag_embed needs a tensor of at least 1 dimension"));
    };
    let size = length + offset.abs();
    let mut sizes = x.dims();
    sizes.pop();
    for axis in [a.min(b), a.max(b)] {
        sizes.insert(axis, size);
    }
    let zeros = cx.b().splat(0, x.dtype(), &sizes);
    Ok(written(zeros, &diagonal_of(whole(zeros), offset, a, b), x))
}

// ---- writes through views --------------------------------------------------------------------------

/// `base` after writing an argument through the view that `make` computes.
fn replaced<'b>(cx: &Cx<'b>, base: Value<'b>, source: &str, make: MakeView) -> Result<Value<'b>> {
    let spec = make(cx, whole(base))?;
    Ok(written(base, &spec, cx.tensor(source)?))
}

/// [`replaced`], where the part begins at an int that is an input of the program. It is in range.
fn replaced_at_input<'b>(cx: &Cx<'b>, base: Value<'b>, source: &str, start: &str) -> Result<Value<'b>> {
    let axis = cx.axis_arg("dim", base.rank())?;
    let part = cx.tensor(source)?.convert(base.dtype());
    let part = if part.rank() < base.rank() { part.unsqueeze(axis) } else { part };
    let start = cx.scalar(start, DType::I64)?;
    Ok(base.dynamic_update_slice(part, &bounded_views::starts_along(base, axis, start)))
}

/// Zeros for the gradient of a view.
fn zeros<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    Ok(cx.b().splat(0, cx.ty("grad_output")?.dtype, &cx.capacities("input_sizes")?))
}

fn unfold_backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_in")?;
    let grad = grad.zero_filled(0..grad.rank(), "windows over merged dimensions");
    let sizes = cx.capacities("input_sizes")?;
    if sizes.is_empty() {
        // A number has one window, of one element or of none.
        return Ok(grad.reduce_sum(&[0]));
    }
    let axis = cx.axis_arg("dim", sizes.len())?;
    let places = strided_views::windows(cx.b(), &sizes, axis, cx.int("size")?, cx.int("step")?);
    let whole = cx.b().splat(0, grad.dtype(), &sizes);
    // The capacity of the result may have more windows than the gradient, or fewer.
    let grad = grad.pad_axis(axis, 0, 0, places.shape()[axis] - grad.dim(axis));
    // A gradient of one row is that of every row.
    let rows = |i: usize| if i != axis && grad.dim(i) == 1 { sizes[i] } else { grad.dim(i) };
    let dims: Vec<i64> = (0..sizes.len()).map(rows).chain([grad.dim(sizes.len())]).collect();
    let grad = grad.broadcast_to(&dims);
    Ok(places.write(whole, grad.move_axis(grad.rank() - 1, axis + 1), Combine::Add))
}

// ---- images --------------------------------------------------------------------------------------

/// The product of the leading dimensions, and the last three dimensions.
fn image(x: Value<'_>) -> Result<(i64, [i64; 3])> {
    match x.dims()[..] {
        [ref lead @ .., channels, height, width] => Ok((lead.iter().product(), [channels, height, width])),
        _ => Err(Error::runtime("an image has at least 3 dimensions")),
    }
}

fn with_image(x: Value<'_>, sizes: [i64; 3]) -> Vec<i64> {
    let mut dims = x.dims();
    dims.truncate(dims.len() - 3);
    dims.extend(sizes);
    dims
}
