//! Singular values and vectors.

use stablehlo::{DType, Value};

use crate::common::matrices::{adjoint, batched, diagonal, identity, in_units, times, unbatched};
use crate::common::reflectors::factors;
use crate::common::sorting::sorted;
use crate::ops::linalg::divide;
use crate::ops::linalg::jacobi::{LARGEST, columns_at, norms, orthogonalized};
use crate::ops::linalg::reduction::Bidiagonal;

/// `U · S · Vᴴ` with S descending. U and V are square if `full`.
pub(crate) fn svd(a: Value<'_>, full: bool) -> (Value<'_>, Value<'_>, Value<'_>) {
    let rank = a.rank();
    let (height, width) = (a.dim(rank - 2), a.dim(rank - 1));
    if height < width {
        let (u, s, vh) = svd(adjoint(a), full);
        return (adjoint(vh), s, adjoint(u));
    }
    if a.numel() == 0 {
        let columns = if full { height } else { width };
        let mut dims = a.dims();
        dims.truncate(rank - 2);
        dims.push(width);
        let u = identity(a, height).slice_axis(rank - 1, 0, columns);
        return (u, a.builder().splat(0, a.dtype().real(), &dims), identity(a, width));
    }
    let (a, unit) = in_units(a, &[rank - 2, rank - 1]);
    let (u, s, vh) = of_tall(a, full);
    (u, s * unit.squeeze(rank - 1), vh)
}

/// The same of matrices with as many rows as columns, or more, whose squares are in range.
fn of_tall(a: Value<'_>, full: bool) -> (Value<'_>, Value<'_>, Value<'_>) {
    let rank = a.rank();
    let (height, width) = (a.dim(rank - 2), a.dim(rank - 1));
    if height > width {
        let (q, r) = factors(a, full);
        let (u, s, vh) = of_tall(r.slice_axis(rank - 2, 0, width), full);
        let turned = times(q.slice_axis(rank - 1, 0, width), u);
        let rest = q.slice_axis(rank - 1, width, q.dim(rank - 1));
        return (a.builder().concatenate(&[turned, rest], rank - 1), s, vh);
    }
    if width > LARGEST {
        return divided(a);
    }
    let (columns, v) = orthogonalized(batched(a));
    let norms = norms(columns);
    let (s, order) = sorted(norms.convert(a.dtype().real()), 1, true);
    let order = order.convert(DType::I32);
    let (columns, v) = (columns_at(columns, order), columns_at(v, order));
    // The columns are orthogonal, so their QR factors are their directions. QR also completes the basis where columns
    // vanish.
    let (q, r) = factors(columns, true);
    let phase = diagonal(r);
    let size = phase.abs().convert(phase.dtype());
    let phase = size.eq(0).select(phase.splat_like(1), phase / size);
    let u = q * phase.unsqueeze(1);
    (unbatched(u, a), unbatched(s, a), unbatched(adjoint(v), a))
}

/// Large square matrices: by divide and conquer, after a reduction to a bidiagonal matrix.
fn divided<'b>(a: Value<'b>) -> (Value<'b>, Value<'b>, Value<'b>) {
    let reduced = Bidiagonal::of(batched(a));
    let (u, s, v) = divide::svd(reduced.diagonal, reduced.above);
    let turned = |basis, x: Value<'b>| times(basis, x.reverse(&[2]).convert(a.dtype()));
    let (u, v) = (turned(reduced.left, u), turned(reduced.right, v));
    let s = s.reverse(&[1]);
    (unbatched(u, a), unbatched(s, a), unbatched(adjoint(v), a))
}
