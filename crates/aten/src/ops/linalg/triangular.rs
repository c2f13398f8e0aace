//! Triangular systems, Cholesky factors and cross products.

use stablehlo::Value;

use crate::common::matrices::{adjoint, diagonal, first_failure, identity, same_batch, triangle};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["linalg_solve_triangular"], |cx| {
        let (a, b) = same_batch(cx.tensor("self")?, cx.tensor("B")?)?;
        let unit = cx.bool("unitriangular")?;
        Ok(a.triangular_solve(b, cx.bool("left")?, !cx.bool("upper")?, unit, false))
    }),
    many(&["triangular_solve"], |cx| {
        let (a, b) = same_batch(cx.tensor("A")?, cx.tensor("self")?)?;
        let (upper, transpose) = (cx.bool("upper")?, cx.bool("transpose")?);
        Ok(vec![a.triangular_solve(b, true, !upper, cx.bool("unitriangular")?, transpose), a])
    }),
    many(&["linalg_cholesky_ex"], |cx| {
        let x = cx.tensor("self")?;
        let upper = cx.bool("upper")?;
        let factor = triangle(if upper { adjoint(x) } else { x }.cholesky(), true);
        let failed = diagonal(factor).real().is_nan();
        Ok(vec![if upper { adjoint(factor) } else { factor }, first_failure(failed)])
    }),
    one(&["_cholesky_solve_helper"], |cx| {
        let (factor, b) = same_batch(cx.tensor("A")?, cx.tensor("self")?)?;
        Ok(cholesky_solve(factor, b, cx.bool("upper")?))
    }),
    one(&["cholesky_inverse"], |cx| {
        let factor = cx.tensor("self")?;
        Ok(cholesky_solve(factor, identity(factor, factor.dim(factor.rank() - 1)), cx.bool("upper")?))
    }),
    one(&["linalg_cross"], |cx| {
        let (a, b) = cx.pair("self", "other")?;
        let (a, b) = a.broadcast_with(b);
        let axis = cx.axis_arg("dim", a.rank())?;
        Ok(rotate_axis(a, axis, 1) * rotate_axis(b, axis, 2) - rotate_axis(a, axis, 2) * rotate_axis(b, axis, 1))
    }),
];

// ---- shared --------------------------------------------------------------------------------------

/// The three elements along `axis`, rotated so that element `first` comes first.
fn rotate_axis(x: Value<'_>, axis: usize, first: i64) -> Value<'_> {
    x.builder().concatenate(&[x.slice_axis(axis, first, 3), x.slice_axis(axis, 0, first)], axis)
}

/// Solves `factor · factorᴴ · X = b`, or `factorᴴ · factor · X = b` if `upper`.
fn cholesky_solve<'b>(factor: Value<'b>, b: Value<'b>, upper: bool) -> Value<'b> {
    let lower = if upper { adjoint(factor) } else { factor };
    let half = lower.triangular_solve(b, true, true, false, false);
    adjoint(lower).triangular_solve(half, true, false, false, false)
}
