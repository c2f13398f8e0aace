//! Eigenvalues and eigenvectors of general matrices, by the QR algorithm in complex numbers (Francis, 1961): shifted
//! QR steps make the matrix triangular, its diagonal then holds the eigenvalues (Golub and Van Loan, "Matrix
//! Computations", § 7.5).

use stablehlo::{DType, Value};

use crate::common::matrices::{adjoint, batched, diagonal, identity, place, times, unbatched};
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
    }),
    one(&["_linalg_eigvals", "linalg_eigvals"], |cx| {
        let a = cx.tensor("self")?;
        Ok(unbatched(Schur::of(a).values(), a))
    }),
];

/// Steps for each eigenvalue after which the rest is taken as it is; three are usual.
const MOST_STEPS: i64 = 30;
/// Steps without an eigenvalue after which a shift of another kind leaves the cycle that the usual ones are in.
const PATIENCE: i64 = 10;

/// What takes the place of a distance of zero between eigenvalues: small, but not so that its reciprocal overflows.
const SHORTEST: f64 = 1e-30;

/// `A = basis · triangle · basisᴴ`, for a batch of matrices.
struct Schur<'b> {
    triangle: Value<'b>,
    basis: Value<'b>,
}

impl<'b> Schur<'b> {
    fn of(a: Value<'b>) -> Schur<'b> {
        let b = a.builder();
        let matrix = batched(a).convert(a.dtype().complex());
        let (batch, size) = (matrix.dim(0), matrix.dim(2));
        let basis = identity(matrix, size);
        if size < 2 || batch == 0 {
            return Schur { triangle: matrix, basis };
        }
        // How many leading rows of each matrix are not yet triangular, and for how many steps so.
        let active = b.splat(size, DType::I32, &[batch, 1, 1]);
        let waited = b.splat(0, DType::I32, &[batch, 1, 1]);
        let state = b.while_loop(
            &[b.scalar(0, DType::I32), active, waited, matrix, basis],
            |state| state[0].lt(MOST_STEPS * size) & state[1].gt(1).reduce_any(&[0, 1, 2]),
            |state| step(state),
        );
        let upper = place(state[3], 0).le(place(state[3], 1));
        Schur { triangle: upper.select(state[3], 0), basis: state[4] }
    }

    fn values(&self) -> Value<'b> {
        diagonal(self.triangle)
    }

    /// The eigenvectors of the triangle by substitution from below, all at once, taken to the original basis. Each
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
                let column = place(coefficients, 1);
                let own = column.eq(row).select(coefficients, 0).reduce_sum(&[2]).unsqueeze(2);
                let distance = own - values;
                // Of equal eigenvalues the distance is that of rounding.
                let least = t.abs().reduce_max(&[1, 2]).reshape(&[batch, 1, 1]) * t.dtype().real().epsilon();
                let least = least.max(SHORTEST);
                let distance = distance.abs().lt(least).select(least.convert(t.dtype()), distance);
                let found = -times(coefficients, vectors) / distance;
                let found = column.gt(row).select(found, column.eq(row).convert(t.dtype()));
                vec![row - 1, t, vectors.dynamic_update_slice(found, &[zero, row, zero])]
            },
        );
        let vectors = times(self.basis, state[2]);
        let magnitude = vectors.abs();
        let largest = magnitude.reduce_max(&[1]).unsqueeze(1);
        // Scaled first, since substitution may have made them very long.
        let vectors = vectors / largest.convert(t.dtype());
        let magnitude = magnitude / largest;
        let norm = magnitude.square().reduce_sum(&[1]).sqrt().unsqueeze(1);
        let row = place(magnitude, 0);
        let first = magnitude.ge(1.0).select(row, size).reduce_min(&[1]).unsqueeze(1);
        let phase = row.eq(first).select(vectors, 0).reduce_sum(&[1]).unsqueeze(1);
        vectors * phase.conjugate() / norm.convert(t.dtype())
    }
}

/// One QR step on the active part of each matrix, with Wilkinson's shift; then the last active row is given up if
/// nothing is left of it but its eigenvalue.
fn step<'b>(state: &[Value<'b>]) -> Vec<Value<'b>> {
    let (active, waited, a, basis) = (state[1], state[2], state[3], state[4]);
    let dtype = a.dtype();
    let (row, column) = (place(a, 0), place(a, 1));
    let last = active - 1;
    let at = |from_end_row: i64, from_end_column: i64| {
        let chosen = row.eq(last - from_end_row) & column.eq(last - from_end_column);
        chosen.select(a, 0).reduce_sum(&[1, 2]).reshape(&[a.dim(0), 1, 1])
    };
    let (p, q, r, s) = (at(1, 1), at(1, 0), at(0, 1), at(0, 0));
    let is_stuck = (waited % PATIENCE).eq(PATIENCE - 1);
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

/// The eigenvalue of the matrix `p q; r s` that is nearest to `s`.
fn nearest_eigenvalue<'b>(p: Value<'b>, q: Value<'b>, r: Value<'b>, s: Value<'b>) -> Value<'b> {
    let half = (p - s) * 0.5;
    let product = q * r;
    let root = (half * half + product).sqrt();
    let sum = (half + root).abs().ge((half - root).abs()).select(half + root, half - root);
    sum.eq(0).select(s, s - product / sum)
}
