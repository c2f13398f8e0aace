//! Orthogonal factors by Householder reflections. XLA has custom calls for them, which it expands on every platform:
//! `Qr` packs the reflectors and R as LAPACK's geqrf does.
//!
//! XLA squares the elements as they are. Columns are scaled first, so that the squares neither overflow nor underflow. A
//! power of two changes R only, and exactly. What is left of columns that depend on each other may still be as small: a
//! real reflection is then the identity, but a complex one is not unitary. A loop computes these, with the scaled norms
//! of LAPACK's larfg.

use stablehlo::{DType, Type, Value};

use crate::common::matrices::{adjoint, batched, identity, in_units, position_along, times, triangle, unbatched};

/// The number of columns of a panel.
const PANEL: i64 = 64;

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
    let scales = scales_of(a);
    if a.numel() == 0 {
        return (a, a.builder().splat(0, scales.dtype, &scales.dims));
    }
    let a = a.without_extents();
    if a.dtype().is_complex() {
        let (packed, scales) = complex_reflectors(batched(a));
        return (unbatched(packed, a), unbatched(scales, a));
    }
    let (scaled, unit) = in_units(a, &[a.rank() - 2]);
    let results = a.builder().custom_call("Qr", &[scaled], "", vec![a.ty(), scales]);
    let packed = results[0];
    let is_reflector = position_along(packed, 0).gt(position_along(packed, 1));
    (is_reflector.select(packed, packed * unit), results[1])
}

/// The type of the scales: as many as the shorter side.
fn scales_of(a: Value<'_>) -> Type {
    let mut dims = a.dims();
    let width = dims.pop().unwrap_or(0);
    if let Some(last) = dims.last_mut() {
        *last = width.min(*last);
    }
    Type::new(a.dtype(), &dims)
}

/// For batch × rows × columns, by panels of columns: the later columns change once for all reflections of a panel.
fn complex_reflectors(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let (height, width) = (a.dim(1), a.dim(2));
    if width <= PANEL {
        return panel_of_reflectors(a);
    }
    let (left, scales) = panel_of_reflectors(a.slice_axis(2, 0, PANEL));
    let right = reflected(a.slice_axis(2, PANEL, width), left, scales);
    if height <= PANEL {
        return (b.concatenate(&[left, right], 2), scales);
    }
    let (below, more) = complex_reflectors(right.slice_axis(1, PANEL, height));
    let right = b.concatenate(&[right.slice_axis(1, 0, PANEL), below], 1);
    (b.concatenate(&[left, right], 2), b.concatenate(&[scales, more], 1))
}

/// (I - V · T · Vᴴ)ᴴ · `x`, where V holds the reflectors of `packed`. T is the factor of the compact WY representation
/// (Schreiber and Van Loan): the inverse of T has the inverse scales on its diagonal, and VᴴV above it.
fn reflected<'b>(x: Value<'b>, packed: Value<'b>, scales: Value<'b>) -> Value<'b> {
    let (row, column) = (position_along(packed, 0), position_along(packed, 1));
    let reflectors = row.eq(column).select(packed.splat_like(1), row.gt(column).select(packed, 0));
    let reflectors = reflectors.slice_axis(2, 0, scales.dim(1));
    let scales = scales.conjugate().unsqueeze(2);
    let lower = scales * times(adjoint(reflectors), reflectors);
    let turned = lower.triangular_solve(scales * times(adjoint(reflectors), x), true, true, true, false);
    x - times(reflectors, turned)
}

fn panel_of_reflectors(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let scales = scales_of(a);
    let state = [b.scalar(0, DType::I32), a, b.splat(0, scales.dtype, &scales.dims)];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(scales.dims[1]),
        |state| {
            let [step, a, scales] = [state[0], state[1], state[2]];
            let Reflection { vector, factor, result } = Reflection::of(column(a, step), step);
            let (row, column) = (position_along(a, 0), position_along(a, 1));
            let vector = vector.unsqueeze(2);
            // The reflection changes the later columns, in the rows from the diagonal on.
            let later = times(adjoint(vector), column.gt(step).select(a, 0));
            let a = a - factor.conjugate().unsqueeze(2) * times(vector, later);
            let packed = (row.gt(step) & column.eq(step)).select(vector.broadcast_to(&a.dims()), a);
            let diagonal = result.convert(a.dtype()).unsqueeze(2).broadcast_to(&a.dims());
            let packed = (row.eq(step) & column.eq(step)).select(diagonal, packed);
            let scales = position(scales).eq(step).select(factor.broadcast_to(&scales.dims()), scales);
            vec![step + 1, packed, scales]
        },
    );
    (state[1], state[2])
}

/// The reflection `1 − factor · vector · vectorᴴ`. Its adjoint turns a vector into `result`, real, at one place, and
/// zeros behind it. The first element of `vector`, at that place, is one (LAPACK's larfg).
pub(crate) struct Reflection<'b> {
    pub vector: Value<'b>,
    pub factor: Value<'b>,
    pub result: Value<'b>,
}

impl<'b> Reflection<'b> {
    /// For `x`, batch × size, from the element `first` on.
    pub(crate) fn of(x: Value<'b>, first: Value<'b>) -> Reflection<'b> {
        let position = position(x);
        let (is_first, is_behind) = (position.eq(first), position.gt(first));
        let (x, unit) = in_units(position.ge(first).select(x, 0), &[1]);
        let alpha = is_first.select(x, 0).reduce_sum(&[1]).unsqueeze(1);
        let behind = is_behind.select(x, 0);
        let rest = behind.abs().square().reduce_sum(&[1]).unsqueeze(1);
        let real = alpha.real();
        let length = (alpha.abs().square() + rest).sqrt();
        // Nothing to turn: a real number with zeros behind it.
        let is_done = if x.dtype().is_complex() { rest.eq(0.0) & alpha.imag().eq(0.0) } else { rest.eq(0.0) };
        let result = is_done.select(real, -length.copy_sign(real));
        let wide = |x: Value<'b>| x.convert(alpha.dtype());
        let divisor = is_done.select(result.splat_like(1), result);
        let factor = is_done.select(alpha.splat_like(0), (wide(result) - alpha) / wide(divisor));
        let divisor = is_done.select(alpha.splat_like(1), alpha - wide(result));
        let vector = is_first.select(x.splat_like(1), behind / divisor);
        Reflection { vector, factor, result: result * unit }
    }
}

/// The number of each element along dimension 1.
pub(crate) fn position(x: Value<'_>) -> Value<'_> {
    x.builder().iota(DType::I32, &x.dims(), 1)
}

/// The column `index` of each matrix, batch × rows.
pub(crate) fn column<'b>(matrix: Value<'b>, index: Value<'b>) -> Value<'b> {
    let zero = index.splat_like(0);
    matrix.dynamic_slice(&[zero, zero, index], &[matrix.dim(0), matrix.dim(1), 1]).squeeze(2)
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
