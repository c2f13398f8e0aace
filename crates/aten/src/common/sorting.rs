//! Sorting.

use stablehlo::{DType, Value};

use crate::common::sort_keys;

/// The sorted elements along `axis` and their positions (int64). The sort is stable.
pub(crate) fn sorted(x: Value<'_>, axis: usize, descending: bool) -> (Value<'_>, Value<'_>) {
    let b = x.builder();
    if x.rank() == 0 {
        return (x, b.scalar(0, DType::I64));
    }
    if x.is_bounded_along(&[axis]) {
        let padding_last = x.filled_along(axis, last_value(x, descending), "a sort of merged dimensions");
        let (values, positions) = sorted(padding_last, axis, descending);
        return (values.bounded_like(x), positions.bounded_like(x));
    }
    let (dims, dtype) = (x.dims(), x.dtype());
    let keys = sort_keys::keys(x).filter(|keys| keys.dtype() != DType::U64 && dims[axis] < 1 << 31);
    let Some(keys) = keys else {
        let pairs = [x, b.iota(DType::of_counts(dims[axis]), &dims, axis)];
        let sorted = b.sort(&pairs, axis, true, |left, right| left[0].sorts_before(right[0], descending));
        return (sorted[0], sorted[1].convert(DType::I64));
    };
    // One word holds the key, the position and whether a zero is negative. Sorting plain integers is several times
    // faster than comparing pairs, and needs no stability.
    let keys = if descending { !keys } else { keys };
    let words = keys.convert(DType::U64).shift_left(32) | b.iota(DType::U64, &dims, axis).shift_left(1);
    let words = if dtype.is_float() { words | sort_keys::is_minus_zero(x).convert(DType::U64) } else { words };
    let words = b.sort(&[words], axis, false, |left, right| left[0].lt(right[0]))[0];
    let keys = words.shift_right_logical(32).convert(keys.dtype());
    let values = sort_keys::elements(if descending { !keys } else { keys }, dtype);
    let values = if dtype.is_float() { (words & 1).ne(0).select(values.splat_like(-0.0), values) } else { values };
    (values, (words.shift_right_logical(1) & 0x7fff_ffff).convert(DType::I64))
}

/// An element that sorts after all others, 0-d. Padding filled with it comes last, because the sort is stable.
pub(crate) fn last_value(x: Value<'_>, descending: bool) -> Value<'_> {
    let (b, dtype) = (x.builder(), x.dtype());
    match (descending, dtype.is_float()) {
        (true, true) => b.scalar(f64::NEG_INFINITY, dtype),
        (true, false) => b.scalar(dtype.lowest(), dtype),
        (false, true) => b.scalar(f64::NAN, dtype),
        (false, false) => b.scalar(dtype.highest(), dtype),
    }
}
