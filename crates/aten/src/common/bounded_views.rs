//! Views of bounded dimensions. The program computes starts and element positions from the sizes.

use stablehlo::{Builder, DType, Extent, Value};

use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::places::Places;
use crate::radix::{Radix, factors};
use crate::spec::{ArgSpec, Dim};

/// The argument `dim`, if that dimension of `self` or the slice of it is bounded.
pub(crate) fn bounded_axis(cx: &Cx<'_>) -> Result<Option<usize>> {
    let x = cx.tensor("self")?;
    let axis = cx.axis_arg("dim", x.rank())?;
    Ok(Some(axis).filter(|&axis| x.rank() > 0 && (x.is_bounded_along(&[axis]) || takes_bounded(cx))))
}

/// Whether a slice or selection has a bounded start, end or index.
fn takes_bounded(cx: &Cx<'_>) -> bool {
    ["start", "end", "index"].into_iter().any(|name| matches!(cx.arg(name), Arg::Plain(ArgSpec::Dim(_))))
}

/// The index argument `name` in a bounded dimension of `size`. Negative indices count from the end. int64, 0-d.
fn place_in<'b>(cx: &Cx<'b>, size: Value<'b>, name: &str) -> Result<Value<'b>> {
    let index = cx.dim(name)?;
    let place = cx.size_of(&index);
    Ok(match index.sizes.is_empty() {
        true if index.capacity < 0 => size + place,
        true => place,
        false => place.lt(0).select(size + place, place),
    })
}

/// The start of a slice of a bounded dimension of `size`: int64, 0-d.
fn start_of<'b>(cx: &Cx<'b>, size: Value<'b>) -> Result<Value<'b>> {
    match cx.is_none("start") {
        true => Ok(cx.b().scalar(0, DType::I64)),
        false => Ok(place_in(cx, size, "start")?.max(0).min(size)),
    }
}

/// Dimension `dim` of the argument `input_sizes` and its size, if the size is bounded, or that of the part in it.
pub(crate) fn bounded_input<'b>(cx: &Cx<'b>) -> Result<Option<(usize, Value<'b>)>> {
    let sizes = cx.dims("input_sizes")?;
    let axis = cx.axis_arg("dim", sizes.len())?;
    let grad = cx.tensor("grad_output")?;
    let has_bounded_part = grad.rank() == sizes.len() && grad.is_bounded_along(&[axis]);
    let bounded = |size: &&Dim| !size.sizes.is_empty() || has_bounded_part || takes_bounded(cx);
    Ok(sizes.get(axis).filter(bounded).map(|size| (axis, cx.size_of(size))))
}

/// The gradient of [`slice`].
pub(crate) fn slice_back<'b>(cx: &Cx<'b>, zeros: Value<'b>, axis: usize, size: &Value<'b>) -> Result<Value<'b>> {
    let part = in_steps(cx, cx.tensor("grad_output")?, axis)?;
    Ok(write_padded(zeros, part, axis, start_of(cx, *size)?))
}

/// Whether the input or the results of a split are bounded.
pub(crate) fn is_split(cx: &Cx<'_>, x: Value<'_>, axis: usize) -> bool {
    let is_bounded = |dims: &[Dim]| dims.get(axis).is_some_and(|dim| !dim.sizes.is_empty());
    x.rank() > 0 && (x.is_bounded_along(&[axis]) || cx.result_dims(0).is_some_and(is_bounded))
}

/// The parts of a bounded dimension. `sizes` has one size for each part, or one size for all parts but the last.
/// PyTorch gives the number of parts and their lengths.
pub(crate) fn split<'b>(cx: &Cx<'b>, x: Value<'b>, axis: usize, sizes: &[Dim]) -> Vec<Value<'b>> {
    x.require_prefix(axis, "a split of merged dimensions");
    let lengths = (0..).map_while(|i| Some(cx.result_dims(i)?.get(axis)?.capacity));
    let mut start = cx.b().scalar(0, DType::I64);
    let part = |(i, length): (usize, i64)| {
        let room = x.whole_along(axis).pad_axis(axis, 0, 0, length);
        let part = run_from(room, axis, start, length);
        start = start + cx.size_of(&sizes[i.min(sizes.len() - 1)]);
        part
    };
    lengths.enumerate().map(part).collect()
}

/// The argument `step`. Eager modes make it an input of the program only where it is 1. In a graph it may be a symbol.
fn step_of(cx: &Cx<'_>) -> Result<i64> {
    match cx.arg("step") {
        Arg::Plain(ArgSpec::Input(_)) => Ok(1),
        Arg::Plain(ArgSpec::Dim(step)) if step.capacity == Dim::ANY => Ok(1),
        _ if cx.is_input("step") => Err(Error::not_implemented("a slice whose step changes")),
        _ => Ok(cx.int_or_none("step").unwrap_or(1)),
    }
}

/// A part with its padding filled with zeros, and with zeros between its elements if the argument `step` is above 1.
fn in_steps<'b>(cx: &Cx<'b>, part: Value<'b>, axis: usize) -> Result<Value<'b>> {
    let filled = part.zero_filled([axis], "a slice of merged dimensions");
    let (none, mut between) = (vec![0; part.rank()], vec![0; part.rank()]);
    between[axis] = step_of(cx)? - 1;
    Ok(filled.pad(0, &none, &none, &between))
}

/// `self` with the argument `src` written to a slice of it, or to one index if `is_index`.
pub(crate) fn scatter<'b>(cx: &Cx<'b>, is_index: bool) -> Result<Value<'b>> {
    let (x, src) = (cx.tensor("self")?, cx.tensor("src")?);
    let axis = cx.axis_arg("dim", x.rank())?;
    x.require_prefix(axis, "a slice of merged dimensions");
    let size = x.size(axis, DType::I64);
    let src = src.convert(x.dtype());
    let (src, start) = match is_index {
        true => (src.unsqueeze(axis), place_in(cx, size, "index")?),
        false => (src, start_of(cx, size)?),
    };
    let step = step_of(cx)?;
    let zeros = cx.b().splat(0, x.dtype(), &x.dims());
    let moved = write_padded(zeros, in_steps(cx, src, axis)?, axis, start);
    let place = cx.b().iota(DType::I64, &[x.dim(axis)], 0) - start.broadcast_to(&[x.dim(axis)]);
    let mut is_replaced = place.ge(0) & place.lt((src.size(axis, DType::I64) * step).broadcast_to(&[x.dim(axis)]));
    if step != 1 {
        is_replaced = is_replaced & (place % step).eq(0);
    }
    Ok(is_replaced.broadcast_in_dim(&x.dims(), &[axis]).select(moved, x))
}

/// The gradient of [`select`].
pub(crate) fn select_back<'b>(cx: &Cx<'b>, zeros: Value<'b>, axis: usize, size: &Value<'b>) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?.unsqueeze(axis);
    Ok(write_padded(zeros, grad, axis, place_in(cx, *size, "index")?))
}

/// `zeros` with `part` written at `start`. `part` may reach beyond the end.
fn write_padded<'b>(zeros: Value<'b>, part: Value<'b>, axis: usize, start: Value<'b>) -> Value<'b> {
    // A part without the padding of merged dimensions would come to other places.
    if (0..zeros.rank()).any(|i| i != axis && part.dim(i) != zeros.dim(i)) {
        zeros.builder().refuse_bounded("a slice with other padding");
    }
    let room = zeros.pad_axis(axis, 0, 0, part.dim(axis));
    write_at(room, part, axis, start).slice_axis(axis, 0, zeros.dim(axis))
}

/// `whole` with `part` written at `start`, where it fits.
pub(crate) fn write_at<'b>(whole: Value<'b>, part: Value<'b>, axis: usize, start: Value<'b>) -> Value<'b> {
    whole.dynamic_update_slice(part, &starts_along(whole, axis, start))
}

/// The starts of a part that covers every dimension but `axis` fully.
pub(crate) fn starts_along<'b>(whole: Value<'b>, axis: usize, start: Value<'b>) -> Vec<Value<'b>> {
    let zero = whole.builder().scalar(0, DType::I64);
    (0..whole.rank()).map(|i| if i == axis { start } else { zero }).collect()
}

/// Reverses a bounded dimension. Reversing the whole dimension puts the valid elements at the end, so they are moved
/// to the start.
pub(crate) fn flip(x: Value<'_>, axis: usize) -> Value<'_> {
    x.require_prefix(axis, "a reversal of merged dimensions");
    let capacity = x.dim(axis);
    let start = -x.size(axis, DType::I64) + capacity;
    let reversed = x.whole_along(axis).reverse(&[axis]).pad_axis(axis, 0, 0, capacity);
    run_from(reversed, axis, start, capacity).with_extents(x.extents())
}

/// `length` elements of one dimension, from the computed `start` on. All of them must exist.
pub(crate) fn run_from<'b>(x: Value<'b>, axis: usize, start: Value<'b>, length: i64) -> Value<'b> {
    let mut sizes = x.dims();
    sizes[axis] = length;
    x.whole_along(axis).dynamic_slice(&starts_along(x, axis, start), &sizes)
}

pub(crate) fn select<'b>(cx: &Cx<'b>, axis: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    x.require_prefix(axis, "a slice of merged dimensions");
    let place = place_in(cx, x.size(axis, DType::I64), "index")?;
    Ok(run_from(x, axis, place, 1).squeeze(axis))
}

/// A slice of a bounded dimension. PyTorch gives its length.
pub(crate) fn slice<'b>(cx: &Cx<'b>, axis: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let step = step_of(cx)?;
    let Some(length) = cx.result_dims(0).and_then(|dims| dims.get(axis)).cloned() else {
        return Err(Error::not_implemented("a slice of unknown length"));
    };
    x.require_prefix(axis, "a slice of merged dimensions");
    let start = start_of(cx, x.size(axis, DType::I64))?;
    if step == 1 && length.capacity == x.dim(axis) && length.sizes == x.extent(axis).sizes() {
        return Ok(x); // all of it
    }
    let covered = (length.capacity - 1).max(0) * step + length.capacity.min(1);
    let known = if cx.is_none("start") {
        Some(0)
    } else {
        Some(cx.dim("start")?).filter(|s| s.sizes.is_empty()).map(|s| s.capacity)
    };
    if let Some(start) = known.filter(|start| (0..=x.dim(axis) - covered).contains(start)) {
        return Ok(x.whole_along(axis).slice_axis_by(axis, start, start + covered, step));
    }
    // Pad at the end: dynamic_slice moves a start that is too close to the end.
    let room = x.whole_along(axis).pad_axis(axis, 0, 0, covered);
    Ok(run_from(room, axis, start, covered).slice_axis_by(axis, 0, covered, step))
}

/// Concatenates values along a dimension that is bounded in some of them. Each value is written where the valid
/// elements of the previous ones end, over their padding.
pub(crate) fn join<'b>(b: &'b Builder, values: &[Value<'b>], axis: usize) -> Value<'b> {
    let whole: Vec<Value<'b>> = values.iter().map(|value| value.whole_along(axis)).collect();
    let mut joined = b.concatenate(&whole, axis);
    let mut start = b.scalar(0, DType::I64);
    for (value, whole) in values.iter().zip(&whole) {
        value.require_prefix(axis, "a cat of merged dimensions");
        joined = write_at(joined, *whole, axis, start);
        start = start + value.size(axis, DType::I64);
    }
    joined
}

// ---- diagonals -----------------------------------------------------------------------------------

/// A mask of the elements on the diagonal given by the argument `offset`, in a tensor of these sizes.
fn diagonal_mask<'b>(cx: &Cx<'b>, sizes: &[i64], rows: usize, columns: usize) -> Result<Value<'b>> {
    let index = |axis: usize| cx.b().iota(DType::I64, &[sizes[axis]], 0).broadcast_in_dim(sizes, &[axis]);
    Ok((index(rows) + cx.int("offset")?).eq(index(columns)))
}

/// The one element along `axis` that a mask chooses.
pub(crate) fn chosen_along<'b>(x: Value<'b>, mask: Value<'b>, axis: usize) -> Value<'b> {
    let chosen = mask.select(x, 0);
    match x.dtype() {
        DType::Bool => chosen.reduce_any(&[axis]),
        _ => chosen.reduce_sum(&[axis]),
    }
}

/// `diagonal`: the one element of each row, or column, that is on the diagonal.
pub(crate) fn diagonal<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let (rows, columns) = (cx.axis_arg("dim1", x.rank())?, cx.axis_arg("dim2", x.rank())?);
    [rows, columns].iter().for_each(|&axis| x.require_prefix(axis, "a diagonal of merged dimensions"));
    let mask = diagonal_mask(cx, &x.dims(), rows, columns)?;
    let (gone, kept) = if cx.int("offset")? < 0 { (rows, columns) } else { (columns, rows) };
    let summed = chosen_along(x.whole_along(rows).whole_along(columns), mask, gone);
    let kept = kept - usize::from(gone < kept);
    Ok(cx.resized(0, summed.move_axis(kept, summed.rank() - 1)))
}

/// Zeros with the last dimension of `x` on the diagonal of two dimensions. `sizes` are the capacities of the result.
pub(crate) fn embed_diagonal<'b>(cx: &Cx<'b>, x: Value<'b>, sizes: &[i64]) -> Result<Value<'b>> {
    let (rows, columns) = (cx.axis_arg("dim1", sizes.len())?, cx.axis_arg("dim2", sizes.len())?);
    let last = x.rank() - 1;
    let along = if cx.int("offset")? < 0 { columns } else { rows };
    let filled = x.zero_filled([last], "a diagonal of merged dimensions");
    let fitted = filled.pad_axis(last, 0, 0, sizes[along] - x.dim(last));
    let axes: Vec<usize> = (0..sizes.len()).filter(|&axis| axis != rows && axis != columns).chain([along]).collect();
    let mut sorted = axes.clone();
    sorted.sort_unstable();
    let order: Vec<usize> = sorted.iter().filter_map(|axis| axes.iter().position(|other| other == axis)).collect();
    let spread = fitted.transpose(&order).broadcast_in_dim(sizes, &sorted);
    Ok(diagonal_mask(cx, sizes, rows, columns)?.select(spread, 0))
}

// ---- reshapes ------------------------------------------------------------------------------------

/// Whether a reshape keeps the elements of a value at the same positions in memory.
pub(crate) fn keeps_positions(x: Value<'_>, dims: &[Dim]) -> bool {
    x.reshaped_to(&Dim::capacities(dims)).is_some_and(|extents| {
        let sizes = |i: usize| extents.get(i).map(Extent::sizes).unwrap_or_default();
        // A dimension without bounded factors takes PyTorch's extent.
        (0..dims.len()).all(|i| sizes(i) == dims[i].sizes || sizes(i).is_empty())
    })
}

/// A reshape that splits bounded dimensions, or merges them in another order than in memory.
pub(crate) fn reshape<'b>(cx: &Cx<'b>, x: Value<'b>, dims: &[Dim]) -> Value<'b> {
    reshape_valid(
        cx,
        x,
        &Dim::capacities(dims),
        dims.iter().map(|dim| dim.extent(|size| cx.b().capacity(size))).collect(),
    )
}

/// The valid elements of a value, in the same order, in another shape. The program gathers each from its old
/// position.
pub(crate) fn reshape_valid<'b>(cx: &Cx<'b>, x: Value<'b>, dims: &[i64], to: Vec<Extent>) -> Value<'b> {
    let from = x.extents();
    let rank = x.rank().min(dims.len());
    let same = |i: usize, j: usize| x.dim(i) == dims[j] && from[i] == to[j];
    let before = (0..rank).take_while(|&i| same(i, i)).count();
    let behind = (1..=rank - before).take_while(|&i| same(x.rank() - i, dims.len() - i)).count();
    let (old, new) = (before..x.rank() - behind, before..dims.len() - behind);
    let old_dims = x.dims()[old.clone()].to_vec();
    let new_dims = dims[new.clone()].to_vec();

    let position = valid_positions(cx, &new_dims, &to[new]);
    let place = Radix::of(&old_dims, &from[old.clone()]).padded(position);
    let place = place.max(0).min((old_dims.iter().product::<i64>() - 1).max(0));

    let mut whole = x;
    old.clone().for_each(|axis| whole = whole.whole_along(axis));
    let (leading, trailing) = (&x.dims()[..before], &x.dims()[old.end..]);
    let flat = whole.reshape(&[leading, &[old_dims.iter().product()], trailing].concat());
    let fetched = Places::slices(&flat.dims(), before, place).read(flat);
    let result = fetched.reshape(&[leading, &new_dims, trailing].concat());
    result.without_extents().with_extents(to)
}

/// For each element of a value, in the order of memory, its position among the valid elements: a vector of int64.
pub(crate) fn valid_positions<'b>(cx: &Cx<'b>, dims: &[i64], extents: &[Extent]) -> Value<'b> {
    Radix::of(dims, extents).real(cx.b().iota(DType::I64, &[dims.iter().product()], 0))
}

/// The first elements of a vector as the valid elements of a value, in order.
pub(crate) fn spread<'b>(cx: &Cx<'b>, flat: Value<'b>, dims: &[i64], extents: Vec<Extent>) -> Value<'b> {
    let mut inner = dims.iter().zip(&extents).flat_map(|(&dim, extent)| factors(dim, extent)).skip(1);
    let shaped = match inner.any(|factor| factor.size.is_some()) {
        false => flat,
        true => Places::slices(&flat.dims(), 0, valid_positions(cx, dims, &extents)).read(flat),
    };
    shaped.reshape(dims).with_extents(extents)
}

/// The arguments with the valid elements of merged dimensions moved to the start. `None` if no argument changes. Few
/// operators need this; it costs a pass over the elements.
pub(crate) fn compacted<'b>(cx: &Cx<'b>) -> Option<Vec<(&'b str, Arg<'b>)>> {
    let mut is_other = false;
    let mut ordered = |x: Value<'b>| {
        let extents: Vec<Extent> = (0..x.rank()).map(|axis| compact(cx, x, axis)).collect();
        if extents == x.extents() {
            return x;
        }
        is_other = true;
        reshape_valid(cx, x, &x.dims(), extents)
    };
    let args = cx.args.iter().map(|(name, arg)| (*name, map_values(arg, &mut ordered))).collect();
    is_other.then_some(args)
}

/// The extent of a dimension whose valid elements are at the start.
fn compact(cx: &Cx<'_>, x: Value<'_>, axis: usize) -> Extent {
    match x.extent(axis).sizes().as_slice() {
        [] => Extent::default(),
        [size] => Extent::multiple(*size, cx.b().capacity(*size), x.dim(axis)),
        _ => Extent::multiple(cx.b().add_size(x.size(axis, DType::I64), x.dim(axis)), x.dim(axis), x.dim(axis)),
    }
}

/// A result of a row that took the arguments of [`compacted`]. Its merged dimensions have the form that they had in the
/// arguments before.
pub(crate) fn restored<'b>(cx: &Cx<'b>, before: &[(&'b str, Arg<'b>)], result: Value<'b>) -> Value<'b> {
    let mut extents = result.extents();
    let mut values = Vec::new();
    for (_, arg) in before {
        map_values(arg, &mut |value| {
            values.push(value);
            value
        });
    }
    for (axis, extent) in extents.iter_mut().enumerate().filter(|(_, extent)| extent.sizes().len() == 1) {
        let is_it = |(x, i): &(Value<'b>, usize)| {
            x.dim(*i) == result.dim(axis) && x.extent(*i).sizes() == extent.sizes() && compact(cx, *x, *i) == *extent
        };
        let known = values.iter().flat_map(|&x| (0..x.rank()).map(move |i| (x, i))).find(is_it);
        if let Some((x, i)) = known {
            *extent = x.extent(i).clone();
        }
    }
    if extents == result.extents() { result } else { reshape_valid(cx, result, &result.dims(), extents) }
}

/// An argument with its values replaced by `other`.
fn map_values<'b>(arg: &Arg<'b>, other: &mut impl FnMut(Value<'b>) -> Value<'b>) -> Arg<'b> {
    match arg {
        Arg::Value(value) => Arg::Value(other(*value)),
        Arg::List(items) => Arg::List(items.iter().map(|item| map_values(item, other)).collect()),
        arg => arg.clone(),
    }
}
