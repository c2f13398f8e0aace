//! Eigenvalues and eigenvectors of Hermitian matrices.

use stablehlo::{DType, Value};

use crate::common::matrices::{batched, identity, in_units, times, unbatched};
use crate::common::sorting::sorted;
use crate::ops::linalg::divide;
use crate::ops::linalg::jacobi::{LARGEST, columns_at, orthogonalized};
use crate::ops::linalg::reduction::Tridiagonal;

/// Ascending eigenvalues and their vectors of Hermitian matrices. XLA's custom call `Eigh` is not used: its rotations
/// end where the other elements are smaller than the square root of the rounding error, so that float64 vectors are
/// only as precise as float32.
pub(crate) fn eigh(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let mut dims = a.dims();
    let size = dims.pop().unwrap_or(0);
    if a.numel() == 0 {
        return (a.builder().splat(0, a.dtype().real(), &dims), a);
    }
    if size == 1 {
        return (a.real().reshape(&dims), a.splat_like(1));
    }
    let (matrices, unit) = in_units(batched(a), &[1, 2]);
    let (values, vectors) = if size > LARGEST { divided(matrices) } else { rotated(matrices) };
    (unbatched(values * unit.squeeze(2), a), unbatched(vectors, a))
}

/// Large matrices: by divide and conquer, after a reduction to a tridiagonal matrix.
fn divided<'b>(a: Value<'b>) -> (Value<'b>, Value<'b>) {
    let reduced = Tridiagonal::of(a);
    let (values, vectors) = divide::eigh(reduced.diagonal, reduced.beside);
    (values, times(reduced.basis, vectors.convert(a.dtype())))
}

/// Small matrices: by Jacobi's method. A multiple of the identity makes them positive definite. Then the rotations that
/// make the columns orthogonal are the eigenvectors.
fn rotated<'b>(a: Value<'b>) -> (Value<'b>, Value<'b>) {
    let bound = a.abs().reduce_sum(&[1]).reduce_max(&[1]);
    let bound = bound.eq(0.0).select(bound.splat_like(1), bound);
    let shift = (bound * 2.0).convert(a.dtype()).reshape(&[a.dim(0), 1, 1]);
    let (_, vectors) = orthogonalized(a + identity(a, a.dim(2)) * shift);
    let values = (vectors.conjugate() * times(a, vectors)).reduce_sum(&[1]).real();
    let (values, order) = sorted(values, 1, false);
    (values, columns_at(vectors, order.convert(DType::I32)))
}
