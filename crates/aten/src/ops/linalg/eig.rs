//! Eigenvalues and eigenvectors of general matrices, by the QR algorithm in complex numbers (Francis, 1961). Shifted
//! QR steps reduce the matrix to a triangle with the eigenvalues on its diagonal (Golub and Van Loan, "Matrix
//! Computations", § 7.5).

use stablehlo::{DType, Value};

use crate::common::matrices::{
    adjoint, batched, diagonal, each_part, identity, in_units, position_along, times, unbatched,
};
use crate::common::reflectors::factors;
use crate::error::Error;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["linalg_eig"], |cx| {
        let a = cx.tensor("self")?;
        let message = "torch.linalg.eig: input tensor should not contain infs or NaNs.";
        cx.check_finite_matrices(a, Error::runtime(message));
        let schur = Schur::of(a);
        Ok(vec![unbatched(schur.values(), a), unbatched(schur.vectors(), a)])
    })
    .raises_at_call(),
    one(&["_linalg_eigvals", "linalg_eigvals"], |cx| {
        let a = cx.tensor("self")?;
        Ok(unbatched(Schur::of(a).values(), a))
    }),
];

/// The largest number of steps for each eigenvalue; three are usual. After that, the result is used as it is.
const MOST_STEPS: i64 = 30;
/// The number of steps without an eigenvalue after which an exceptional shift is used. It breaks cycles of the usual
/// shifts.
const STEPS_BEFORE_EXCEPTIONAL_SHIFT: i64 = 10;

/// Replaces a distance of zero between eigenvalues. Small, but its reciprocal does not overflow.
const SMALLEST_DISTANCE: f64 = 1e-30;

/// The Schur form `A = unit · basis · triangle · basisᴴ`, for a batch of matrices.
struct Schur<'b> {
    unit: Value<'b>,
    triangle: Value<'b>,
    basis: Value<'b>,
}

impl<'b> Schur<'b> {
    fn of(a: Value<'b>) -> Schur<'b> {
        let b = a.builder();
        let matrix = batched(a).convert(a.dtype().complex());
        let (batch, size) = (matrix.dim(0), matrix.dim(2));
        let basis = identity(matrix, size);
        let (matrix, unit) = in_units(matrix, &[1, 2]);
        if size < 2 || batch == 0 {
            return Schur { unit, triangle: matrix, basis };
        }
        // The number of leading rows of each matrix that are not triangular yet, and the number of steps since the
        // last eigenvalue.
        let active = b.splat(size, DType::I32, &[batch, 1, 1]);
        let waited = b.splat(0, DType::I32, &[batch, 1, 1]);
        let state = b.while_loop(
            &[b.scalar(0, DType::I32), active, waited, matrix, basis],
            |state| state[0].lt(MOST_STEPS * size) & state[1].gt(1).reduce_any(&[0, 1, 2]),
            |state| step(state),
        );
        let upper = position_along(state[3], 0).le(position_along(state[3], 1));
        Schur { unit, triangle: upper.select(state[3], 0), basis: state[4] }
    }

    fn values(&self) -> Value<'b> {
        each_part(diagonal(self.triangle), |part| part * self.unit.squeeze(2))
    }

    /// The eigenvectors of the triangle, all at once by back substitution, transformed to the original basis. Each
    /// has length one, and its largest component is real.
    fn vectors(&self) -> Value<'b> {
        let (t, b) = (self.triangle, self.triangle.builder());
        let (batch, size) = (t.dim(0), t.dim(2));
        if t.numel() == 0 {
            return t;
        }
        let start = identity(t, size);
        let state = b.while_loop(
            &[b.scalar(size - 2, DType::I32), t, start],
            |state| state[0].ge(0),
            |state| {
                let (row, t, vectors) = (state[0], state[1], state[2]);
                let zero = row.splat_like(0);
                let coefficients = t.dynamic_slice(&[zero, row, zero], &[batch, 1, size]);
                let values = diagonal(t).unsqueeze(1);
                let column = position_along(coefficients, 1);
                let own = column.eq(row).select(coefficients, 0).reduce_sum(&[2]).unsqueeze(2);
                let distance = own - values;
                // The distance of equal eigenvalues is replaced by the rounding error.
                let least = t.abs().reduce_max(&[1, 2]).reshape(&[batch, 1, 1]) * t.dtype().real().epsilon();
                let least = least.max(SMALLEST_DISTANCE);
                let distance = distance.abs().lt(least).select(least.convert(t.dtype()), distance);
                let found = -times(coefficients, vectors) / distance;
                let found = column.gt(row).select(found, column.eq(row).convert(t.dtype()));
                vec![row - 1, t, vectors.dynamic_update_slice(found, &[zero, row, zero])]
            },
        );
        let vectors = times(self.basis, state[2]);
        let magnitude = vectors.abs();
        let largest = magnitude.reduce_max(&[1]).unsqueeze(1);
        // Scales first, because substitution may give very long vectors.
        let vectors = vectors / largest.convert(t.dtype());
        let magnitude = magnitude / largest;
        let norm = magnitude.square().reduce_sum(&[1]).sqrt().unsqueeze(1);
        let row = position_along(magnitude, 0);
        let first = magnitude.ge(1.0).select(row, size).reduce_min(&[1]).unsqueeze(1);
        let phase = row.eq(first).select(vectors, 0).reduce_sum(&[1]).unsqueeze(1);
        vectors * phase.conjugate() / norm.convert(t.dtype())
    }
}

/// One QR step on the active part of each matrix, with Wilkinson's shift. The last active row becomes inactive if all
/// its elements but the eigenvalue vanish.
fn step<'b>(state: &[Value<'b>]) -> Vec<Value<'b>> {
    let (active, waited, a, basis) = (state[1], state[2], state[3], state[4]);
    let dtype = a.dtype();
    let (row, column) = (position_along(a, 0), position_along(a, 1));
    let last = active - 1;
    let at = |from_end_row: i64, from_end_column: i64| {
        let chosen = row.eq(last - from_end_row) & column.eq(last - from_end_column);
        chosen.select(a, 0).reduce_sum(&[1, 2]).reshape(&[a.dim(0), 1, 1])
    };
    let (p, q, r, s) = (at(1, 1), at(1, 0), at(0, 1), at(0, 0));
    let is_stuck = (waited % STEPS_BEFORE_EXCEPTIONAL_SHIFT).eq(STEPS_BEFORE_EXCEPTIONAL_SHIFT - 1);
    let shift = is_stuck.select(s + r.abs().convert(dtype), nearest_eigenvalue(p, q, r, s));

    let is_active = row.lt(active) & column.lt(active);
    let one = identity(a, a.dim(2));
    let (q, _) = factors(is_active.select(a - one * shift, one), true);
    let a = times(adjoint(q), times(a, q));
    let basis = times(basis, q);

    let is_left = row.eq(last) & column.lt(last);
    let left = is_left.select(a.abs(), 0).reduce_sum(&[1, 2]);
    let scale = is_active.select(a.abs(), 0).reduce_max(&[1, 2]);
    let is_done = left.le(scale * dtype.real().epsilon()).reshape(&[a.dim(0), 1, 1]) & active.gt(1);
    let a = (is_done & is_left).select(a.splat_like(0), a);
    let waited = is_done.select(waited.splat_like(0), waited + 1);
    vec![state[0] + 1, active - is_done.convert(DType::I32), waited, a, basis]
}

/// The eigenvalue of the matrix [[p, q], [r, s]] that is nearest to `s`.
fn nearest_eigenvalue<'b>(p: Value<'b>, q: Value<'b>, r: Value<'b>, s: Value<'b>) -> Value<'b> {
    let half = (p - s) * 0.5;
    let product = q * r;
    let root = (half * half + product).sqrt();
    let sum = (half + root).abs().ge((half - root).abs()).select(half + root, half - root);
    sum.eq(0).select(s, s - product / sum)
}
