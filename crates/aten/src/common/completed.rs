//! Matrices whose sizes are inputs of the program, completed for a factorization.
//!
//! A matrix A with padding becomes the larger matrix with A and an identity matrix on its diagonal. Its factors have the
//! factors of A in their valid positions.

use stablehlo::{Extent, Value};

use crate::common::matrices::position_along;
use crate::places::valid_elements;

/// Square matrices in the last two dimensions, with an identity matrix in the padding. All positions are valid then.
pub(crate) fn completed(x: Value<'_>) -> Value<'_> {
    completed_with(x, |x| x.splat_like(1))
}

/// [`completed`] with other numbers on the diagonal, which `number` gives from the matrices with zeros in the padding.
pub(crate) fn completed_with<'b>(x: Value<'b>, number: impl Fn(Value<'b>) -> Value<'b>) -> Value<'b> {
    if !x.is_bounded() {
        return x;
    }
    require_square(x);
    let zeroed = zeroed(x);
    let is_added = position_along(zeroed, 0).eq(position_along(zeroed, 1)) & !valid_elements(x);
    is_added.select(number(zeroed), zeroed)
}

/// The value with zeros in the padding, all of it valid.
pub(crate) fn zeroed(x: Value<'_>) -> Value<'_> {
    let axes: Vec<usize> = (0..x.rank()).collect();
    x.masked(&axes, x.builder().scalar(0, x.dtype())).without_extents()
}

/// Pivots of matrices, which count from 1. In the padding no rows are exchanged. Valid pivots that are larger than the
/// number of rows of `matrices` are larger than their capacity too.
pub(crate) fn completed_pivots<'b>(pivots: Value<'b>, matrices: Value<'b>) -> Value<'b> {
    if !pivots.is_bounded() {
        return pivots;
    }
    let (whole, rows, last) = (pivots.without_extents(), matrices.rank() - 2, pivots.rank() - 1);
    if pivots.extent(last) != matrices.extent(rows) || pivots.dim(last) != matrices.dim(rows) {
        pivots.builder().refuse_bounded("pivots whose number changes differently from the matrix");
    }
    let own = pivots.builder().iota(pivots.dtype(), &pivots.dims(), last) + 1;
    let is_beyond = whole.gt(matrices.size(rows, pivots.dtype()));
    valid_elements(pivots).select(is_beyond.select(whole.splat_like(matrices.dim(rows) + 1), whole), own)
}

/// Refuses matrices whose rows and columns have different valid positions, or some with padding between.
pub(crate) fn require_square(x: Value<'_>) {
    let (rows, columns) = (x.rank() - 2, x.rank() - 1);
    if x.extent(rows) != x.extent(columns) {
        x.builder().refuse_bounded("a factorization of a matrix whose rows and columns change differently");
    }
    x.require_prefix(rows, "a factorization of merged dimensions");
}

/// A result with the extents of the batch of `like`, and those of its last dimensions `matrix` of `like`.
pub(crate) fn shaped<'b>(result: Value<'b>, like: &[Extent], matrix: &[usize]) -> Value<'b> {
    let batch = like.len() - 2;
    let extents = like[..batch].iter().chain(matrix.iter().map(|&axis| &like[batch + axis]));
    result.with_extents(extents.cloned().collect::<Vec<_>>())
}

/// The extents of the solution of a system with square matrices `a` and right sides `b` of the same batch.
pub(crate) fn solution_extents<'b>(a: Value<'b>, b: Value<'b>, left: bool) -> Vec<Extent> {
    let (rank, mut extents) = (b.rank(), b.extents());
    let side = if left { rank - 2 } else { rank - 1 };
    if a.extent(rank - 1) != b.extent(side) || a.dim(rank - 1) != b.dim(side) {
        b.builder().refuse_bounded("a system whose matrix and right side change differently");
    }
    for (axis, extent) in a.extents().into_iter().enumerate().take(rank - 2).filter(|(_, extent)| !extent.is_whole()) {
        extents[axis] = extent;
    }
    extents
}
