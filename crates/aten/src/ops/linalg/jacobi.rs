//! Jacobi's method: rotations of pairs of columns until all are orthogonal.

use stablehlo::{DType, Number, Value};

use crate::common::matrices::identity;
use crate::common::sorting::sorted;
use crate::places::Places;

/// The largest matrix that this method solves. Its time grows faster than that of divide and conquer, but its programs
/// compile in half the time.
pub(crate) const LARGEST: i64 = 128;

/// The lengths of the columns of each matrix (batch × rows × columns), in its type.
pub(crate) fn norms(columns: Value<'_>) -> Value<'_> {
    let size = columns.abs();
    size.square().reduce_sum(&[1]).sqrt()
}

/// Permutes the columns of each matrix (batch × rows × columns) by `order` (batch × columns).
pub(crate) fn columns_at<'b>(matrix: Value<'b>, order: Value<'b>) -> Value<'b> {
    let dims = matrix.dims();
    let index = order.unsqueeze(1).broadcast_to(&[dims[0], dims[1], order.dim(1)]);
    Places::along(2, index).read(matrix)
}

/// A V with orthogonal columns, and V, by one-sided Jacobi rotations (Hestenes, 1958). All pairs of a round are
/// rotated at once, in the round-robin order of Brent and Luk (1985).
pub(crate) fn orthogonalized(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let (height, width) = (a.dim(1), a.dim(2));
    if width == 1 {
        return (a, identity(a, 1));
    }
    let half = (width + 1) / 2;
    // The columns of A above those of V. A column of zeros is added if the number of columns is odd.
    let both = b.concatenate(&[a, identity(a, width)], 1).pad_axis(2, 0, 0, 2 * half - width);
    let (left, right) = (both.slice_axis(2, 0, half), both.slice_axis(2, half, 2 * half));
    let real = a.dtype().real();
    let tolerance = real_epsilon(real);
    let steps = 2 * half - 1;
    let infinite = b.scalar(f64::INFINITY, real);
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), infinite, b.scalar(0, real), left, right],
        |state| state[0].lt(steps * MOST_SWEEPS) & state[1].gt(tolerance),
        |state| {
            let (step, before, worst, left, right) = (state[0], state[1], state[2], state[3], state[4]);
            let (left, right, angle) = rotated(left, right, height);
            let worst = worst.max(angle.reduce_max(&[0, 1]));
            // After a sweep, every pair has been rotated. The largest angle of the sweep decides whether another
            // follows.
            let is_last = (step % steps).eq(steps - 1);
            let before = is_last.select(worst, before);
            let worst = is_last.select(worst.splat_like(0), worst);
            if half == 1 {
                return vec![step + 1, before, worst, left, right];
            }
            // The first column stays; the others rotate by one position.
            let parts = [left.slice_axis(2, 0, 1), right.slice_axis(2, 0, 1), left.slice_axis(2, 1, half - 1)];
            let last = left.slice_axis(2, half - 1, half);
            let next_right = b.concatenate(&[right.slice_axis(2, 1, half), last], 2);
            vec![step + 1, before, worst, b.concatenate(&parts, 2), next_right]
        },
    );
    let both = b.concatenate(&[state[3], state[4]], 2);
    let v = both.slice_axis(1, height, height + width);
    // The padding is the one column where V is zero: sort it to the end, then remove it.
    if 2 * half == width {
        return (both.slice_axis(1, 0, height), v);
    }
    let padding = norms(v).lt(0.5).convert(DType::I32);
    let (_, order) = sorted(padding, 1, false);
    let kept = columns_at(both, order.convert(DType::I32)).slice_axis(2, 0, width);
    (kept.slice_axis(1, 0, height), kept.slice_axis(1, height, height + width))
}

const MOST_SWEEPS: i64 = 30;

fn real_epsilon(dtype: DType) -> Number {
    Number::Float(dtype.epsilon() * 4.0)
}

/// Rotates each pair of columns so that their first `height` elements become orthogonal. Also returns the cosine of
/// the angle between them before the rotation.
fn rotated<'b>(left: Value<'b>, right: Value<'b>, height: i64) -> (Value<'b>, Value<'b>, Value<'b>) {
    let dtype = left.dtype();
    let top = |x: Value<'b>| x.slice_axis(1, 0, height);
    let square = |x: Value<'b>| top(x).abs().square().reduce_sum(&[1]);
    let (alpha, beta) = (square(left), square(right));
    let inner = (top(left).conjugate() * top(right)).reduce_sum(&[1]);
    let size = inner.abs();
    let limit = alpha.sqrt() * beta.sqrt();
    let cosine = (limit.gt(0.0) & size.gt(0.0)).select(size / limit, 0.0);
    // Orthogonal or zero columns need no rotation.
    let needed = cosine.gt(left.dtype().epsilon());
    let zeta = (beta - alpha) / (size * 2.0);
    let sign = zeta.lt(0.0).select(zeta.splat_like(-1), 1.0);
    let tangent = needed.select(sign / (zeta.abs() + (zeta.square() + 1.0).sqrt()), 0.0);
    let scale = (tangent.square() + 1.0).rsqrt();
    let sine = (scale * tangent).convert(dtype).unsqueeze(1);
    let scale = scale.convert(dtype).unsqueeze(1);
    let phase = needed.select(inner / size.convert(dtype), 1).unsqueeze(1);
    let aligned = right * phase.conjugate();
    (left * scale - aligned * sine, left * sine + aligned * scale, cosine)
}
