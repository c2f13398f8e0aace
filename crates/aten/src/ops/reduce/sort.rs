//! Sorting and searching.

use stablehlo::{DType, DTypes, Target, Value};

use crate::check::Counts;
use crate::common::sorting::sorted;
use crate::cx::Cx;
use crate::error::{Error, ErrorKind, Result, scalar_type_name};
use crate::places::{take_along, take_flat};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["sort", "sort.stable"], |cx| {
        let x = cx.tensor("self")?;
        if x.dtype().is_complex() {
            return Err(Error::new(ErrorKind::Type, "Sort does not support complex dtypes"));
        }
        let (values, positions) = sorted(x, cx.axis_arg("dim", x.rank())?, cx.bool("descending")?);
        Ok(vec![values, positions])
    })
    .bounded(),
    many(&["topk"], top_k).takes(&["self"], DTypes::REAL_NUMBERS).bounded(),
    one(&["searchsorted.Tensor", "searchsorted.Scalar"], |cx| {
        let (mut sequence, values) = cx.pair("sorted_sequence", "self")?;
        if let Some(sorter) = cx.tensor_or_none("sorter") {
            if sorter.dtype() != DType::I64 {
                let found = scalar_type_name(sorter.dtype());
                return Err(Error::runtime(format!(
                    "torch.searchsorted(): sorter must be a tensor of long dtype but got dtype {found}"
                )));
            }
            let last = sequence.rank().saturating_sub(1);
            let error = Error::runtime("torch.searchsorted(): sorter index out of range");
            cx.check_index(sorter, sequence, last, Counts::FromStart, error)?;
            sequence = take_along(sequence, last, sorter);
        }
        let right = match cx.str_or_none("side").as_deref() {
            None | Some("left") => cx.bool("right")?,
            Some("right") => true,
            Some(other) => {
                return Err(Error::runtime(format!(
                    "torch.searchsorted(): side can only be 'left' or 'right' but got {other}"
                )));
            }
        };
        insertion_points(cx, sequence, values, right)
    })
    .takes(&["sorted_sequence", "self"], DTypes::REAL_NUMBERS)
    .bounded(),
    one(&["bucketize.Tensor", "bucketize.Scalar"], |cx| {
        let (boundaries, values) = cx.pair("boundaries", "self")?;
        if boundaries.rank() != 1 {
            return Err(Error::runtime(format!(
                "boundaries tensor must be 1 dimension, but got dim({})",
                boundaries.rank()
            )));
        }
        insertion_points(cx, boundaries, values, cx.bool("right")?)
    })
    .takes(&["boundaries", "self"], DTypes::REAL_NUMBERS)
    .bounded(),
    one(&["isin.Tensor_Tensor"], |cx| {
        let (elements, tests) = cx.pair("elements", "test_elements")?;
        let found = is_among(cx, elements, tests.flatten());
        Ok(if cx.bool("invert")? { !found } else { found })
    })
    .takes(&["elements", "test_elements"], DTypes::REAL_NUMBERS)
    .bounded(),
    one(&["isin.Tensor_Scalar"], |cx| {
        let (elements, number) = cx.pair("elements", "test_element")?;
        Ok(if cx.bool("invert")? { elements.ne(number) } else { elements.eq(number) })
    })
    .takes(&["elements", "test_element"], DTypes::REAL_NUMBERS)
    .bounded(),
    one(&["isin.Scalar_Tensor"], |cx| {
        let (number, tests) = cx.pair("element", "test_elements")?;
        let found = is_among(cx, number, tests.flatten());
        Ok(if cx.bool("invert")? { !found } else { found })
    })
    .takes(&["element", "test_elements"], DTypes::REAL_NUMBERS)
    .bounded(),
];

/// On a CPU, `top_k` of more than one in this many elements takes longer than a sort of all.
const FEW: i64 = 5;

fn top_k<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    if x.rank() == 0 {
        return Ok(vec![x, cx.b().scalar(0, DType::I64)]);
    }
    let (axis, k, largest) = (cx.axis_arg("dim", x.rank())?, cx.dim("k")?, cx.bool("largest")?);
    let count = k.capacity.min(x.dim(axis));
    // The capacity of `k` may be larger than that of the dimension.
    let placed = |first: Value<'b>| {
        let extent = k.extent(|size| cx.b().capacity(size));
        let padded = if k.capacity > count { first.pad_axis(axis, 0, 0, k.capacity - count) } else { first };
        padded.with_extent(axis, extent)
    };
    let most = if cx.b().target() == Target::Tpu { x.dim(axis) - 1 } else { x.dim(axis) / FEW };
    if count == 0 || count > most || !fits_float32(x.dtype()) {
        let (values, positions) = sorted(x, axis, largest);
        // Padding sorts last.
        let first = |all: Value<'b>| placed(all.whole_along(axis).slice_axis(axis, 0, count));
        return Ok(vec![first(values), first(positions)]);
    }
    // XLA's top_k for float32 does not sort all elements.
    let last = x.rank() - 1;
    let y = x.move_axis(axis, last).convert(DType::F32);
    let nan = cx.b().scalar(if largest { 0x7fc0_0000 } else { 0xffc0_0000_i64 }, DType::U32).bitcast(DType::F32);
    let ordered = y.is_nan().select(nan, if largest { y } else { -y });
    let lowest = cx.b().scalar(0xffc0_0000_i64, DType::U32).bitcast(DType::F32);
    let (values, positions) = largest_of(ordered.filled_along(last, lowest, "topk of merged dimensions"), count);
    let values = if largest { values } else { -values };
    let first = |all: Value<'b>, dtype: DType| placed(all.convert(dtype).move_axis(last, axis));
    Ok(vec![first(values, x.dtype()), first(positions, DType::I64)])
}

/// `Value::top_k`, whose positions are int32, for dimensions of any size.
fn largest_of(x: Value<'_>, k: i64) -> (Value<'_>, Value<'_>) {
    let (last, b) = (x.rank() - 1, x.builder());
    let size = x.dim(last);
    if DType::of_counts(size) == DType::I32 {
        return x.top_k(k);
    }
    let parts = [(0, size / 2), (size / 2, size)].map(|(start, end)| {
        let (values, positions) = largest_of(x.slice_axis(last, start, end), k.min(end - start));
        (values, positions.convert(DType::I64) + start)
    });
    let values = b.concatenate(&parts.map(|part| part.0), last);
    let positions = b.concatenate(&parts.map(|part| part.1), last);
    let (values, found) = largest_of(values, k);
    (values, take_along(positions, last, found))
}

fn fits_float32(dtype: DType) -> bool {
    dtype.size_bytes() < 4 || dtype == DType::F32
}

/// Up to this length of a sequence, each value is compared with all of it, which fuses and needs no gather. XLA's CPU
/// compiler splits sums of more than 32 elements and would store the summands.
const SHORT: i64 = 32;

/// Up to this length of a sequence with padding, each value is compared with all of it.
const MANY: i64 = 1024;

/// Whether each of `elements` equals one of `tests`. NaN equals nothing.
fn is_among<'b>(cx: &Cx<'b>, elements: Value<'b>, tests: Value<'b>) -> Value<'b> {
    let (size, rank) = (tests.numel(), elements.rank());
    let is_bounded = elements.is_bounded() || tests.is_bounded();
    if is_bounded && size > MANY {
        cx.b().refuse_bounded("a search among many elements");
    }
    if size <= SHORT || is_bounded {
        return elements.unsqueeze(rank).eq(tests).reduce_any(&[rank]);
    }
    let (sequence, _) = sorted(tests, 0, false);
    // No comparison with NaN holds, and NaN stands at the end.
    let place = bisected(cx, sequence, elements, true, |element, value| element.lt(value));
    place.lt(size) & take_flat(sequence, place.min(size - 1)).eq(elements)
}

/// For each of `values`, the number of elements of the sorted last dimension of `sequence` that are smaller (or, if
/// `right`, not larger). A `sequence` of several dimensions shares the leading ones with `values`.
fn insertion_points<'b>(cx: &Cx<'b>, sequence: Value<'b>, values: Value<'b>, right: bool) -> Result<Value<'b>> {
    let dtype = if cx.bool("out_int32")? { DType::I32 } else { DType::I64 };
    // Negated comparisons, so that NaN values are inserted at the end.
    let before = |element: Value<'b>, value: Value<'b>| match right {
        true => !element.gt(value),
        false => !element.ge(value),
    };
    let shared = sequence.rank() < 2;
    let size = sequence.dims().last().copied().unwrap_or(1);
    if size <= SHORT {
        let rank = values.rank();
        let row = match sequence.rank() {
            0 => sequence.reshape(&[1]),
            1 => sequence,
            _ => sequence.unsqueeze(rank - 1),
        };
        return Ok(before(row, values.unsqueeze(rank)).convert(dtype).reduce_sum(&[rank]));
    }
    let last = sequence.rank() - 1;
    let highest = cx.b().scalar(sequence.dtype().min_identity(), sequence.dtype());
    let filled = sequence.filled_along(last, highest, "a sequence in merged dimensions");
    sequence.require_same_padding(values, 0..last);
    let places = bisected(cx, filled.without_extents(), values.without_extents(), shared, before).bounded_like(values);
    // Padding comes after each value but those that come after all numbers.
    let places =
        if sequence.is_bounded_along(&[last]) { places.min(sequence.size(last, places.dtype())) } else { places };
    Ok(places.convert(dtype))
}

/// The number of elements of the last dimension of `sequence` that are before each value, by binary search: `before`
/// holds for the first elements only. A sequence that is not shared has the leading dimensions of `values`.
fn bisected<'b>(
    cx: &Cx<'b>,
    sequence: Value<'b>,
    values: Value<'b>,
    shared: bool,
    before: impl Fn(Value<'b>, Value<'b>) -> Value<'b>,
) -> Value<'b> {
    let size = sequence.dims().last().copied().unwrap_or(1);
    // `found` grows by halving steps while the element at its end is before the value.
    let first_step = 1_i64 << (63 - size.leading_zeros());
    let dtype = DType::of_counts(2 * size);
    let found = cx.b().splat(0, dtype, &values.dims());
    let state = [cx.b().scalar(first_step, dtype), found, sequence, values];
    let state = cx.b().while_loop(
        &state,
        |state| state[0].gt(0),
        |state| {
            let [step, found, sequence, values] = [state[0], state[1], state[2], state[3]];
            let end = found + step;
            let last = end.min(size) - 1;
            let element =
                if shared { take_flat(sequence, last) } else { take_along(sequence, sequence.rank() - 1, last) };
            let grows = end.le(size) & before(element, values);
            vec![step / 2, grows.select(end, found), sequence, values]
        },
    );
    state[1]
}
