//! Medians, the k-th smallest element, and the mode.

use stablehlo::{DType, DTypes, Number, Value};

use crate::common::reductions::{extreme_with_position, first_position, keep};
use crate::common::sort_keys;
use crate::common::sorting::{last_value, sorted};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::take_along;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["kthvalue"], |cx| {
        let rank = cx.scalar("k", DType::I64)? - 1;
        along(cx, |x, axis| at_rank(x, axis, rank))
    })
    .varies(&["k"], |n, setting| (1..=setting.size()?).contains(&n[0]).then(Vec::new))
    .bounded(),
    many(&["median.dim"], |cx| along(cx, |x, axis| at_rank(x, axis, median_rank(x, &[axis]))))
        .takes(&["self"], DTypes::REAL)
        .bounded(),
    many(&["nanmedian.dim"], |cx| along(cx, |x, axis| at_rank(x, axis, nan_median_rank(x, &[axis]))))
        .takes(&["self"], DTypes::REAL)
        .bounded(),
    one(&["median"], |cx| Ok(of_all(cx.tensor("self")?, median_rank))).takes(&["self"], DTypes::REAL).bounded(),
    one(&["nanmedian"], |cx| Ok(of_all(cx.tensor("self")?, nan_median_rank))).takes(&["self"], DTypes::REAL).bounded(),
    many(&["mode"], |cx| along(cx, mode)).bounded(),
];

/// Applies `f` along the argument `dim` and honours `keepdim`. `f` returns values and positions without that
/// dimension.
fn along<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, usize) -> (Value<'b>, Value<'b>)) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let axis = cx.axis_arg("dim", x.rank())?;
    if x.rank() == 0 {
        return Ok(vec![x, cx.b().scalar(0, DType::I64)]);
    }
    if x.dim(axis) == 0 {
        return Err(Error::index(format!("median(): Expected reduction dim {axis} to have non-zero size.")));
    }
    let (values, positions) = f(x, axis);
    Ok(vec![keep(cx, values, &[axis])?, keep(cx, positions, &[axis])?])
}

/// The element of a rank among all.
fn of_all<'b>(x: Value<'b>, rank: impl FnOnce(Value<'b>, &[usize]) -> Value<'b>) -> Value<'b> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    match x.numel() {
        0 if x.dtype().is_float() => x.builder().scalar(f64::NAN, x.dtype()),
        0 => x.builder().scalar(x.dtype().lowest(), x.dtype()),
        _ => {
            let filled = x.filled(axes.clone(), |x| last_value(x, false), "a rank among merged dimensions");
            at_rank(filled.flatten(), 0, rank(x, &axes)).0
        }
    }
}

fn count_dtype(x: Value<'_>, axes: &[usize]) -> DType {
    DType::of_counts(axes.iter().map(|&axis| x.dim(axis)).product())
}

/// The rank of the lower median. NaN sorts last, and is the median if there is any.
fn median_rank<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let last = x.count(axes, count_dtype(x, axes)) - 1;
    x.is_nan().reduce_any(axes).select(last, last / 2)
}

/// The rank of the lower median of the elements that are not NaN.
fn nan_median_rank<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let numbers = (!x.is_nan()).convert(count_dtype(x, axes)).reduce_sum(axes);
    (numbers - 1).max(0) / 2
}

/// The element of index `rank` (an integer, from 0) of the sorted `axis`, and its first position.
fn at_rank<'b>(x: Value<'b>, axis: usize, rank: Value<'b>) -> (Value<'b>, Value<'b>) {
    let x = x.filled([axis], |x| last_value(x, false), "a rank along merged dimensions");
    let mut dims = x.dims();
    dims[axis] = 1;
    let rank = rank.convert(count_dtype(x, &[axis]));
    let rank = if rank.rank() == 0 { rank.broadcast_to(&dims) } else { rank.unsqueeze(axis) };
    let value = match sort_keys::keys(x.without_extents()) {
        // In the other dimensions, padding stays padding.
        Some(keys) => sort_keys::elements(key_at_rank(keys, axis, rank.without_extents()), x.dtype())
            .with_extents(x.is_bounded().then(|| x.extents())),
        None => {
            let (ordered, _) = sorted(x, axis, false);
            let chosen = x.builder().iota(rank.dtype(), &x.dims(), axis).eq(rank);
            chosen.select(ordered, x.dtype().max_identity()).reduce_max(&[axis]).unsqueeze(axis)
        }
    };
    let found = x.eq(value) | (x.is_nan() & value.is_nan());
    (value.squeeze(axis), first_position(found, axis))
}

/// Radix selection: finds the key bit by bit from the highest, and counts the smaller keys for each bit. Linear in
/// the size, unlike a sort.
fn key_at_rank<'b>(keys: Value<'b>, axis: usize, rank: Value<'b>) -> Value<'b> {
    let b = keys.builder();
    let dtype = keys.dtype();
    let top = Number::Int(1 << (8 * dtype.size_bytes() - 1));
    let state = [b.scalar(top, dtype), b.splat(0, dtype, &rank.dims()), keys, rank];
    let state = b.while_loop(
        &state,
        |state| state[0].ne(0),
        |state| {
            let [bit, prefix, keys, rank] = [state[0], state[1], state[2], state[3]];
            let candidate = prefix | bit;
            let below = keys.lt(candidate).convert(rank.dtype()).reduce_sum(&[axis]).unsqueeze(axis);
            vec![bit.shift_right_logical(1), below.le(rank).select(candidate, prefix), keys, rank]
        },
    );
    state[1]
}

/// The most frequent element and its last position. Of equally frequent elements, the smallest.
fn mode<'b>(x: Value<'b>, axis: usize) -> (Value<'b>, Value<'b>) {
    let b = x.builder();
    let (ordered, positions) = sorted(x, axis, false);
    let (ordered, positions) = (ordered.whole_along(axis), positions.whole_along(axis));
    let (dims, size) = (x.dims(), x.dim(axis));
    let place = b.iota(DType::of_counts(size), &dims, axis);
    let previous = ordered.slice_axis(axis, 0, size - 1).pad_axis(axis, 0, 1, 0);
    let starts = ordered.ne(previous) | place.eq(0);
    let start = starts.select(place, 0).scan(axis, Number::Int(0), |a, x| a.max(x));
    let run = match x.is_bounded_along(&[axis]) {
        true => place.lt(x.size(axis, place.dtype())).select(place - start, -1),
        false => place - start,
    };
    // The first of the longest runs reaches its full length at its last element.
    let (_, end) = extreme_with_position(run, axis, |x, axes| x.reduce_max(axes));
    let pick = |y: Value<'b>| take_along(y, axis, end.unsqueeze(axis)).squeeze(axis);
    (pick(ordered), pick(positions))
}
