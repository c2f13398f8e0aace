//! Matrices in the last two dimensions of a value.

use stablehlo::{DType, Precision, Value, broadcast_dims};

use crate::error::{Error, Result};
use crate::places::Places;

/// The product of matrices in the last two dimensions, in full precision. Factors and solutions cannot be more
/// precise than the products that they are computed from.
pub(crate) fn times<'b>(a: Value<'b>, b: Value<'b>) -> Value<'b> {
    a.builder().with_precision(Precision::Highest, || a.matmul(b, a.dtype()))
}

pub(crate) fn transposed(x: Value<'_>) -> Value<'_> {
    x.swap_axes(x.rank() - 2, x.rank() - 1)
}

/// The conjugate transpose of the last two dimensions.
pub(crate) fn adjoint(x: Value<'_>) -> Value<'_> {
    transposed(x).conjugate()
}

/// The row number (`dimension` 0) or column number (1) of each element, with the shape of `x`.
pub(crate) fn position_along(x: Value<'_>, dimension: usize) -> Value<'_> {
    x.builder().iota(DType::I32, &x.dims(), x.rank() - 2 + dimension)
}

/// The lower or upper triangle. Other elements are zero.
pub(crate) fn triangle(x: Value<'_>, lower: bool) -> Value<'_> {
    let (row, column) = (position_along(x, 0), position_along(x, 1));
    if lower { row.ge(column) } else { row.le(column) }.select(x, 0)
}

/// The main diagonal of the last two dimensions.
pub(crate) fn diagonal(x: Value<'_>) -> Value<'_> {
    let rank = x.rank();
    let short = x.dim(rank - 2).min(x.dim(rank - 1));
    let square = x.slice_axis(rank - 2, 0, short).slice_axis(rank - 1, 0, short);
    position_along(square, 0).eq(position_along(square, 1)).select(square, 0).reduce_sum(&[rank - 1])
}

/// Identity matrices of `size`, of the type and the batch of `like`.
pub(crate) fn identity<'b>(like: Value<'b>, size: i64) -> Value<'b> {
    let b = like.builder();
    let mut dims = like.dims();
    dims.truncate(like.rank() - 2);
    dims.extend([size, size]);
    let rank = dims.len();
    let row = b.iota(DType::I32, &[size, size], 0);
    row.eq(b.iota(DType::I32, &[size, size], 1)).convert(like.dtype()).broadcast_to(&dims[..rank])
}

/// `a` divided by a power of two for each of its parts along `axes`, and these powers, real, of size 1 along `axes`. The
/// largest real or imaginary part of an element is then about one, so that squares neither overflow nor vanish. The power
/// of zeros is zero.
pub(crate) fn in_units<'b>(a: Value<'b>, axes: &[usize]) -> (Value<'b>, Value<'b>) {
    let size = if a.dtype().is_complex() { a.real().abs().max(a.imag().abs()) } else { a.abs() };
    let largest = axes.iter().fold(size.reduce_max(axes), |x, &axis| x.unsqueeze(axis));
    let unit = largest.nearest_power_of_two();
    let divisor = or_one(unit);
    (each_part(a, |part| part / divisor), unit)
}

/// A divisor: `x` with ones in place of zeros.
pub(crate) fn or_one(x: Value<'_>) -> Value<'_> {
    x.eq(0).select(x.splat_like(1), x)
}

/// A real function of `x`, or of its real and imaginary parts.
pub(crate) fn each_part<'b>(x: Value<'b>, function: impl Fn(Value<'b>) -> Value<'b>) -> Value<'b> {
    if x.dtype().is_complex() { function(x.real()).complex(function(x.imag())) } else { function(x) }
}

/// LAPACK's `info` of a factorisation: the 1-based number of the first true element of the last dimension, or 0.
pub(crate) fn first_failure(failed: Value<'_>) -> Value<'_> {
    let axis = failed.rank() - 1;
    let number = failed.builder().iota(DType::I32, &failed.dims(), axis) + 1;
    let none = i64::from(i32::MAX);
    let first = failed.select(number, none).reduce_min(&[axis]);
    first.eq(none).select(first.splat_like(0), first)
}

/// Broadcasts the batch dimensions (all but the last two) of both values.
pub(crate) fn same_batch<'b>(a: Value<'b>, b: Value<'b>) -> Result<(Value<'b>, Value<'b>)> {
    let batch = |x: Value<'_>| x.dims()[..x.rank().saturating_sub(2)].to_vec();
    let Some(common) = broadcast_dims(&batch(a), &batch(b)).filter(|_| a.rank() >= 2 && b.rank() >= 2) else {
        return Err(Error::runtime(format!("batches of matrices {:?} and {:?} do not broadcast", a.dims(), b.dims())));
    };
    let wide = |x: Value<'b>| {
        let dims = [common.as_slice(), &x.dims()[x.rank() - 2..]].concat();
        x.broadcast_to(&dims)
    };
    Ok((wide(a), wide(b)))
}

/// The matrices with all batch dimensions merged into one.
pub(crate) fn batched(x: Value<'_>) -> Value<'_> {
    let dims = x.dims();
    let (batch, matrix) = dims.split_at(dims.len() - 2);
    x.reshape(&[&[batch.iter().product()], matrix].concat())
}

/// The inverse of [`batched`]: gives a value the batch dimensions of `like`.
pub(crate) fn unbatched<'b>(x: Value<'b>, like: Value<'b>) -> Value<'b> {
    x.reshape(&[&like.dims()[..like.rank() - 2], &x.dims()[1..]].concat())
}

/// Permutes the rows of each matrix.
pub(crate) fn moved_rows<'b>(matrix: Value<'b>, order: Value<'b>) -> Value<'b> {
    let flat = batched(matrix);
    unbatched(rows_at(flat, order.reshape(&[flat.dim(0), flat.dim(1)])), matrix)
}

/// Permutes the rows of each matrix (batch × rows × columns) by `order` (batch × rows).
pub(crate) fn rows_at<'b>(matrix: Value<'b>, order: Value<'b>) -> Value<'b> {
    let (batch, height, width) = (matrix.dim(0), matrix.dim(1), matrix.dim(2));
    let first = matrix.builder().iota(DType::I32, &[batch, 1], 0) * height;
    let all = matrix.reshape(&[batch * height, width]);
    Places::slices(&all.dims(), 0, order + first).read(all)
}
