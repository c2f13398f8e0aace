//! Triangular systems, Cholesky factors and cross products.

use stablehlo::{DType, DTypes, Value};

use crate::check::Check;
use crate::common::completed::{completed, shaped, solution_extents, zeroed};
use crate::common::matrices::{adjoint, batched, diagonal, first_failure, identity, same_batch, triangle, unbatched};
use crate::cx::Cx;
use crate::error::{ErrorKind, Result};
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["linalg_solve_triangular"], |cx| {
        // PyTorch copies `B` into a result of the type of `self`.
        let a = cx.tensor("self")?;
        let (a, b) = same_batch(a, cx.tensor("B")?.convert(a.dtype()))?;
        let (left, unit) = (cx.bool("left")?, cx.bool("unitriangular")?);
        let extents = solution_extents(a, b, left);
        let solution = completed(a).triangular_solve(zeroed(b), left, !cx.bool("upper")?, unit, false);
        Ok(shaped(solution, &extents, &[0, 1]))
    })
    .takes(&["self"], DTypes::INEXACT),
    many(&["triangular_solve"], |cx| {
        let (a, b) = same_batch(cx.tensor("A")?, cx.tensor("self")?)?;
        let (upper, transpose) = (cx.bool("upper")?, cx.bool("transpose")?);
        let extents = solution_extents(a, b, true);
        let solution = completed(a).triangular_solve(zeroed(b), true, !upper, cx.bool("unitriangular")?, transpose);
        Ok(vec![shaped(solution, &extents, &[0, 1]), a])
    }),
    many(&["linalg_cholesky_ex"], |cx| {
        let given = cx.tensor("self")?;
        let (x, extents, upper) = (completed(given), given.extents(), cx.bool("upper")?);
        let x = if upper { adjoint(x) } else { x };
        let factor = triangle(x.cholesky(), true);
        let info = first_minor_that_fails(x, factor);
        let why = format!(
            "The factorization could not be completed because the input is not positive-definite (the leading minor of \
             order {} is not positive-definite).",
            Check::LOW
        );
        cx.check_info(info, "linalg.cholesky_ex", ErrorKind::Linalg, &why)?;
        let factor = if upper { adjoint(factor) } else { factor };
        Ok(vec![shaped(factor, &extents, &[0, 1]), shaped(info, &extents, &[])])
    }),
    one(&["_cholesky_solve_helper"], |cx| solved_by_factor(cx, "A")),
    one(&["cholesky_solve"], |cx| solved_by_factor(cx, "input2")),
    one(&["cholesky_inverse"], |cx| {
        let given = cx.tensor("self")?;
        let factor = completed(given);
        let why = format!(
            "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
            Check::LOW
        );
        cx.check_codes(first_failure(diagonal(factor).eq(0)), "cholesky_inverse", ErrorKind::Linalg, &why);
        let inverse = cholesky_solve(factor, identity(factor, factor.dim(factor.rank() - 1)), cx.bool("upper")?);
        Ok(shaped(inverse, &given.extents(), &[0, 1]))
    }),
    one(&["linalg_cross"], |cx| {
        let (a, b) = cx.pair("self", "other")?;
        let (a, b) = a.broadcast_with(b);
        let axis = cx.axis_arg("dim", a.rank())?;
        [a, b].iter().for_each(|x| x.require_whole(&[axis], "a cross product"));
        Ok(rotate_axis(a, axis, 1) * rotate_axis(b, axis, 2) - rotate_axis(a, axis, 2) * rotate_axis(b, axis, 1))
    })
    .one_dtype(&["self", "other"]),
]);

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

fn solved_by_factor<'b>(cx: &Cx<'b>, factor: &str) -> Result<Value<'b>> {
    let (factor, b) = same_batch(cx.tensor(factor)?, cx.tensor("self")?)?;
    let extents = solution_extents(factor, b, true);
    Ok(shaped(cholesky_solve(completed(factor), zeroed(b), cx.bool("upper")?), &extents, &[0, 1]))
}

/// Solves `factor · factorᴴ · X = b`, or `factorᴴ · factor · X = b` if `upper`.
fn cholesky_solve<'b>(factor: Value<'b>, b: Value<'b>, upper: bool) -> Value<'b> {
    let lower = if upper { adjoint(factor) } else { factor };
    let half = lower.triangular_solve(b, true, true, false, false);
    adjoint(lower).triangular_solve(half, true, false, false, false)
}
