//! Orthogonal factors by Householder reflections. XLA has custom calls for them, which it expands on every platform:
//! `Qr` packs the reflectors and R as LAPACK's geqrf does.

use stablehlo::{Type, Value};

use crate::common::matrices::{identity, triangle};

/// `Q` and `R`. Q has as many columns as the shorter side, or is square if `complete`.
pub(crate) fn factors(a: Value<'_>, complete: bool) -> (Value<'_>, Value<'_>) {
    let rank = a.rank();
    let (height, width) = (a.dim(rank - 2), a.dim(rank - 1));
    let columns = if complete { height } else { height.min(width) };
    if a.numel() == 0 {
        let q = identity(a, height).slice_axis(rank - 1, 0, columns);
        return (q, a.slice_axis(rank - 2, 0, columns));
    }
    let (packed, scales) = reflectors(a);
    let q = product(widened(packed.slice_axis(rank - 1, 0, columns.min(width)), columns), scales);
    (q, triangle(packed.slice_axis(rank - 2, 0, columns), false))
}

/// R with the reflectors below its diagonal, and the scales of the reflectors.
pub(crate) fn reflectors(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let mut scales = a.dims();
    let width = scales.pop().unwrap_or(0);
    if let Some(last) = scales.last_mut() {
        *last = width.min(*last);
    }
    let scales = Type::new(a.dtype(), &scales);
    if a.numel() == 0 {
        return (a, a.builder().splat(0, scales.dtype, &scales.dims));
    }
    let results = a.builder().custom_call("Qr", &[a], "", vec![a.ty(), scales]);
    (results[0], results[1])
}

/// The first columns of the product of the reflectors below the diagonal.
pub(crate) fn product<'b>(packed: Value<'b>, scales: Value<'b>) -> Value<'b> {
    if packed.numel() == 0 {
        return packed;
    }
    let call = "ProductOfElementaryHouseholderReflectors";
    packed.builder().custom_call(call, &[packed, scales], "", vec![packed.ty()])[0]
}

/// Appends columns of zeros up to `columns`.
pub(crate) fn widened(x: Value<'_>, columns: i64) -> Value<'_> {
    let last = x.rank() - 1;
    x.pad_axis(last, 0, 0, columns - x.dim(last))
}
