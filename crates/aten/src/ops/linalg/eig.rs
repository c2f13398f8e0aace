//! Eigenvalues and eigenvectors of general matrices: balanced, reduced to Hessenberg form, and then to a triangle with the
//! eigenvalues on its diagonal, as by LAPACK's geev. Back substitution gives the vectors.

use stablehlo::{DType, Value};

use crate::common::matrices::{
    batched, diagonal, each_part, identity, in_units, position_along, times, triangle, unbatched,
};
use crate::error::Error;
use crate::ops::linalg::balance::Balanced;
use crate::ops::linalg::quasi_triangle::Blocks;
use crate::ops::linalg::reduction::Hessenberg;
use crate::ops::linalg::schur::schur;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["linalg_eig"], |cx| {
        let a = cx.tensor("self")?;
        let message = "torch.linalg.eig: input tensor should not contain infs or NaNs.";
        cx.check_finite_matrices(a, Error::runtime(message));
        let (values, vectors) = eig(batched(a));
        Ok(vec![unbatched(values, a), unbatched(vectors, a)])
    })
    .raises_at_call(),
    one(&["_linalg_eigvals", "linalg_eigvals"], |cx| {
        let a = cx.tensor("self")?;
        Ok(unbatched(eigvals(batched(a)), a))
    }),
];

/// Replaces a distance of zero between eigenvalues. Small, but its reciprocal does not overflow.
const SMALLEST_DISTANCE: f64 = 1e-30;
/// Substitution makes longer vectors short again, before they overflow.
const LONG: f64 = 1e12;

/// Whether there are no matrices, or only matrices of one element or none.
fn is_trivial(a: Value<'_>) -> bool {
    a.numel() == 0 || a.dim(2) == 1
}

/// The eigenvalues of batch × size × size, complex, batch × size.
fn eigvals(a: Value<'_>) -> Value<'_> {
    if is_trivial(a) {
        return diagonal(a).convert(a.dtype().complex());
    }
    let (a, unit) = in_units(a, &[1, 2]);
    let h = Hessenberg::of(Balanced::of(a).matrix).matrix;
    let (t, _) = schur(h, h.slice_axis(1, 0, 0));
    let values = if t.dtype().is_complex() { diagonal(t) } else { Blocks::of(t).values() };
    each_part(values, |part| part * unit.squeeze(2))
}

/// The eigenvalues, and the vectors, complex, batch × size × size. Each vector has length one, and its largest component is
/// real.
fn eig(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    if is_trivial(a) {
        let a = a.convert(a.dtype().complex());
        return (diagonal(a), identity(a, a.dim(2)));
    }
    let is_real = !a.dtype().is_complex();
    let (a, unit) = in_units(a, &[1, 2]);
    let balanced = Balanced::of(a);
    let reduced = Hessenberg::of(balanced.matrix);
    let (t, basis) = schur(reduced.matrix, reduced.basis());
    let (t, basis) = if is_real { Blocks::of(t).triangle(t, basis) } else { (triangle(t, false), basis) };
    let values = diagonal(t);
    let vectors = turned(balanced.undone(times(basis, substituted(t))));
    let vectors = if is_real { as_of_real_matrix(vectors, values.imag()) } else { vectors };
    (each_part(values, |part| part * unit.squeeze(2)), normalized(vectors))
}

/// The eigenvectors of complex triangles, batch × size × size, all at once by back substitution.
fn substituted<'b>(t: Value<'b>) -> Value<'b> {
    let b = t.builder();
    let (batch, size) = (t.dim(0), t.dim(2));
    // The distance of equal eigenvalues is replaced by the rounding error.
    let least = t.abs().reduce_max(&[1, 2]).reshape(&[batch, 1, 1]) * t.dtype().real().epsilon();
    let least = least.max(SMALLEST_DISTANCE);
    let state = b.while_loop(
        &[b.scalar(size - 2, DType::I32), least, diagonal(t).unsqueeze(1), t, identity(t, size)],
        |state| state[0].ge(0),
        |state| {
            let [row, least, values, t, vectors] = [state[0], state[1], state[2], state[3], state[4]];
            let zero = row.splat_like(0);
            let coefficients = t.dynamic_slice(&[zero, row, zero], &[batch, 1, size]);
            let column = position_along(coefficients, 1);
            let own = column.eq(row).select(coefficients, 0).reduce_sum(&[2]).unsqueeze(2);
            let distance = own - values;
            let distance = distance.abs().lt(least).select(least.convert(t.dtype()), distance);
            let found = -times(coefficients, vectors) / distance;
            let found = column.gt(row).select(found, column.eq(row).convert(t.dtype()));
            let length = found.real().abs().max(found.imag().abs());
            let factor = length.gt(LONG).select(length.nearest_power_of_two().recip(), 1);
            let scaled = |x: Value<'b>| each_part(x, |part| part * factor);
            let vectors = scaled(vectors).dynamic_update_slice(scaled(found), &[zero, row, zero]);
            vec![row - 1, least, values, t, vectors]
        },
    );
    state[4]
}

/// Columns (batch × size × size) with a largest component that is real, about one.
fn turned(vectors: Value<'_>) -> Value<'_> {
    let largest = vectors.abs().reduce_max(&[1]).unsqueeze(1);
    let vectors = each_part(vectors, |part| part / largest);
    let magnitude = vectors.abs();
    let row = position_along(magnitude, 0);
    let is_largest = magnitude.ge(magnitude.reduce_max(&[1]).unsqueeze(1));
    let first = is_largest.select(row, vectors.dim(1)).reduce_min(&[1]).unsqueeze(1);
    let is_first = row.eq(first);
    let phase = is_first.select(vectors, 0).reduce_sum(&[1]).unsqueeze(1);
    let turned = vectors * phase.conjugate();
    let imag = turned.imag();
    turned.real().complex(is_first.select(imag.splat_like(0), imag))
}

/// The eigenvectors of real matrices (batch × size × size): real ones for eigenvalues without an imaginary part in `beside`
/// (batch × size), and conjugates for conjugate pairs.
fn as_of_real_matrix<'b>(vectors: Value<'b>, beside: Value<'b>) -> Value<'b> {
    let beside = beside.unsqueeze(1);
    let previous = vectors.pad_axis(2, 0, 1, -1).conjugate();
    let vectors = beside.lt(0).select(previous, vectors);
    let imag = vectors.imag();
    vectors.real().complex(beside.eq(0).select(imag.splat_like(0), imag))
}

fn normalized(vectors: Value<'_>) -> Value<'_> {
    let norm = (vectors.real().square() + vectors.imag().square()).reduce_sum(&[1]).sqrt().unsqueeze(1);
    each_part(vectors, |part| part / norm)
}
