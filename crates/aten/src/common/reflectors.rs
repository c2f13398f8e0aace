//! Orthogonal factors by Householder reflections. XLA has custom calls for them, which it expands on every platform:
//! `Qr` packs the reflectors and R as LAPACK's geqrf does.
//!
//! XLA squares the elements as they are. Columns are scaled first, so that the squares neither overflow nor underflow. A
//! power of two changes R only, and exactly. What is left of columns that depend on each other may still be as small: a
//! real reflection is then the identity, but a complex one is not unitary. A loop computes these, with the scaled norms
//! of LAPACK's larfg.

use stablehlo::{DType, Type, Value};

use crate::common::matrices::{adjoint, identity, in_units, position_along, times, triangle};

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
        return complex_reflectors(a);
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

/// By panels of columns: the later columns change once for all reflections of a panel.
fn complex_reflectors(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let (last, rows) = (a.rank() - 1, a.rank() - 2);
    let (height, width) = (a.dim(rows), a.dim(last));
    if width <= PANEL {
        return panel_of_reflectors(a);
    }
    let (left, scales) = panel_of_reflectors(a.slice_axis(last, 0, PANEL));
    let right = reflected(a.slice_axis(last, PANEL, width), left, scales);
    if height <= PANEL {
        return (b.concatenate(&[left, right], last), scales);
    }
    let (below, more) = complex_reflectors(right.slice_axis(rows, PANEL, height));
    let right = b.concatenate(&[right.slice_axis(rows, 0, PANEL), below], rows);
    (b.concatenate(&[left, right], last), b.concatenate(&[scales, more], last - 1))
}

/// (I - V · T · Vᴴ)ᴴ · `x`, where V holds the reflectors of `packed`. T is the factor of the compact WY representation
/// (Schreiber and Van Loan): the inverse of T has the inverse scales on its diagonal, and VᴴV above it.
fn reflected<'b>(x: Value<'b>, packed: Value<'b>, scales: Value<'b>) -> Value<'b> {
    let (row, column) = (position_along(packed, 0), position_along(packed, 1));
    let reflectors = row.eq(column).select(packed.splat_like(1), row.gt(column).select(packed, 0));
    let reflectors = reflectors.slice_axis(x.rank() - 1, 0, scales.dim(x.rank() - 2));
    let scales = scales.conjugate().unsqueeze(x.rank() - 1);
    let lower = scales * times(adjoint(reflectors), reflectors);
    let turned = lower.triangular_solve(scales * times(adjoint(reflectors), x), true, true, true, false);
    x - times(reflectors, turned)
}

fn panel_of_reflectors(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let last = a.rank() - 1;
    let scales = scales_of(a);
    let state = [b.scalar(0, DType::I32), a, b.splat(0, scales.dtype, &scales.dims)];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(scales.dims[last - 1]),
        |state| {
            let [step, a, scales] = [state[0], state[1], state[2]];
            let (row, column) = (position_along(a, 0), position_along(a, 1));
            let x = column.eq(step).select(a, 0).reduce_sum(&[last]).unsqueeze(last);
            let reflection = Reflection::of(x, step);
            // Of the later columns, only the rows from the diagonal on change.
            let later = times(adjoint(reflection.vector), column.gt(step).select(a, 0));
            let a = a - reflection.scale.conjugate() * times(reflection.vector, later);
            let packed = (row.gt(step) & column.eq(step)).select(reflection.vector.broadcast_to(&a.dims()), a);
            let packed = (row.eq(step) & column.eq(step)).select(reflection.diagonal.broadcast_to(&a.dims()), packed);
            let place = b.iota(DType::I32, &scales.dims(), last - 1);
            let scale = reflection.scale.squeeze(last).broadcast_to(&scales.dims());
            vec![step + 1, packed, place.eq(step).select(scale, scales)]
        },
    );
    (state[1], state[2])
}

/// I - scale · vector · vectorᴴ, the adjoint of which makes a column zero below the diagonal.
struct Reflection<'b> {
    vector: Value<'b>,
    scale: Value<'b>,
    diagonal: Value<'b>,
}

impl<'b> Reflection<'b> {
    /// Of the complex column `x` whose diagonal element is in the row `step`.
    fn of(x: Value<'b>, step: Value<'b>) -> Self {
        let axis = x.rank() - 2;
        let sum = |x: Value<'b>| x.reduce_sum(&[axis]).unsqueeze(axis);
        let row = position_along(x, 0);
        let (rest, unit) = in_units(row.ge(step).select(x, 0), &[axis]);
        let alpha = sum(row.eq(step).select(rest, 0));
        let below = row.gt(step).select(rest, 0);
        let squares = |x: Value<'b>| x.real().square() + x.imag().square();
        let square = sum(squares(below));
        let is_done = square.eq(0) & alpha.imag().eq(0);
        let norm = (square + squares(alpha)).sqrt();
        let beta = is_done.select(alpha.real(), alpha.real().lt(0).select(norm, -norm));
        let scale = ((beta - alpha.real()) / beta).complex(-alpha.imag() / beta);
        let divisor = is_done.select(alpha.splat_like(1), alpha - beta.convert(alpha.dtype()));
        Self {
            vector: row.eq(step).select(x.splat_like(1), below / divisor),
            scale: is_done.select(scale.splat_like(0), scale),
            diagonal: (beta * unit).convert(x.dtype()),
        }
    }
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
