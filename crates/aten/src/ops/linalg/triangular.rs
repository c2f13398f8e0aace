//! Triangular systems, Cholesky factors and cross products.

use stablehlo::{DType, Value};

use crate::check::Check;
use crate::common::matrices::{adjoint, batched, diagonal, first_failure, identity, same_batch, triangle, unbatched};
use crate::error::ErrorKind;
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
        let x = if upper { adjoint(x) } else { x };
        let factor = triangle(x.cholesky(), true);
        let info = first_minor_that_fails(x, factor);
        let why = format!(
            "The factorization could not be completed because the input is not positive-definite (the leading minor of \
             order {} is not positive-definite).",
            Check::LOW
        );
        cx.check_info(info, "linalg.cholesky_ex", ErrorKind::Linalg, &why)?;
        Ok(vec![if upper { adjoint(factor) } else { factor }, info])
    }),
    one(&["_cholesky_solve_helper"], |cx| {
        let (factor, b) = same_batch(cx.tensor("A")?, cx.tensor("self")?)?;
        Ok(cholesky_solve(factor, b, cx.bool("upper")?))
    }),
    one(&["cholesky_inverse"], |cx| {
        let factor = cx.tensor("self")?;
        let why = format!(
            "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
            Check::LOW
        );
        cx.check_codes(first_failure(diagonal(factor).eq(0)), "cholesky_inverse", ErrorKind::Linalg, &why);
        Ok(cholesky_solve(factor, identity(factor, factor.dim(factor.rank() - 1)), cx.bool("upper")?))
    }),
    one(&["linalg_cross"], |cx| {
        let (a, b) = cx.pair("self", "other")?;
        let (a, b) = a.broadcast_with(b);
        let axis = cx.axis_arg("dim", a.rank())?;
        [a, b].iter().for_each(|x| x.require_whole(&[axis], "a cross product"));
        Ok(rotate_axis(a, axis, 1) * rotate_axis(b, axis, 2) - rotate_axis(a, axis, 2) * rotate_axis(b, axis, 1))
    })
    .bounded(),
];

/// LAPACK's `info` of a Cholesky factorization: the order of the first leading minor that is not positive, or 0. XLA
/// fills all of a factor that does not exist with NaN, so this eliminates column by column; only if a matrix failed.
fn first_minor_that_fails<'b>(x: Value<'b>, factor: Value<'b>) -> Value<'b> {
    let (b, matrix) = (x.builder(), batched(x));
    let (batch, n) = (matrix.dim(0), matrix.dim(1));
    let failed = diagonal(batched(factor)).real().is_nan().convert(DType::I32).reduce_max(&[1]);
    let none = b.splat(0, DType::I32, &[batch]);
    if matrix.numel() == 0 {
        return unbatched(none, x);
    }
    let first_column = failed.reduce_max(&[0]).eq(0).select(b.scalar(n, DType::I32), 0);
    let state = b.while_loop(
        &[first_column, matrix, none],
        |state| state[0].lt(n),
        |state| {
            let (k, rest, info) = (state[0], state[1], state[2]);
            let index = b.iota(DType::I32, &[batch, n], 1);
            let column = b.iota(DType::I32, &[batch, n, n], 2).eq(k).select(rest, 0).reduce_sum(&[2]);
            let pivot = index.eq(k).select(column, 0).reduce_sum(&[1]);
            let fails = !pivot.real().gt(0) & info.eq(0);
            let below = index.gt(k).select(column, 0);
            let across = (below / pivot.unsqueeze(1)).conjugate().unsqueeze(1);
            vec![k + 1, rest - below.unsqueeze(2) * across, fails.select(k + 1, info)]
        },
    );
    // Where only rounding made XLA's factor fail, its last minor is what fails.
    let found = state[2].eq(0).select(none + n, state[2]);
    unbatched(failed.eq(0).select(none, found), x)
}

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
