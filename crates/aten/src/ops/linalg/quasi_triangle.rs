//! Real Schur forms: triangles with blocks of two rows on the diagonal. A rotation splits a block with real eigenvalues, and
//! gives others two equal numbers on the diagonal, as LAPACK's lanv2 does. So real eigenvalues have no imaginary parts, and
//! others are exact conjugates.

use stablehlo::Value;

use crate::common::matrices::{adjoint, or_one, position_along};
use crate::ops::linalg::schur::{Bands, next, previous};

/// The blocks of real matrices. All values are batch × size, and belong to the first row of a block. Those of rows that
/// begin no block are those of a diagonal block.
pub(crate) struct Blocks<'b> {
    is_first: Value<'b>,
    /// The rotation of the block.
    cosine: Value<'b>,
    sine: Value<'b>,
    /// The diagonal of the rotated block.
    diagonal: [Value<'b>; 2],
    /// The positive imaginary part of the eigenvalues, or zero.
    beside: Value<'b>,
    /// The eigenvector (long, i · short) of the rotated block, of length one. `short` is zero if the eigenvalues are real.
    long: Value<'b>,
    short: Value<'b>,
}

impl<'b> Blocks<'b> {
    /// For batch × size × size.
    pub(crate) fn of(t: Value<'b>) -> Blocks<'b> {
        let bands = Bands::of(t);
        let is_joined = bands.left.ne(0);
        let is_first = next(is_joined) & !is_joined & !next(next(is_joined));
        let (a, d) = (bands.main, next(bands.main));
        let middle = (a + d) * 0.5;
        let [p, b, c] = [(a - d) * 0.5, bands.right, next(bands.left)].map(|x| is_first.select(x, 0));
        let unit = or_one(p.abs().max(b.abs()).max(c.abs()));
        let [p, b, c] = [p, b, c].map(|x| x / unit);

        // Two real eigenvalues that are well apart: the rotation makes c zero.
        let square = p.square() + b * c;
        let is_apart = square.ge(4.0 * t.dtype().epsilon());
        let z = p + square.max(0).sqrt().copy_sign(p);
        let length = or_one((c.square() + z.square()).sqrt());
        let apart =
            Rotated { cosine: z / length, sine: c / length, diagonal: [d + z * unit, d - b / or_one(z) * c * unit] };

        // Others: the rotation makes both numbers on the diagonal equal.
        let sum = b + c;
        let length = (sum.square() + (p * 2.0).square()).sqrt();
        let cosine = length.eq(0).select(p.splat_like(1), ((sum.abs() / or_one(length) + 1.0) * 0.5).sqrt());
        let sine = p / (or_one(length) * cosine) * -sum.splat_like(1).copy_sign(sum);
        let above = (b * cosine - p * sine) * cosine - (c * sine + p * cosine) * sine;
        let below = (c * cosine - p * sine) * cosine - (p * cosine + b * sine) * sine;
        let pair = Rotated { cosine, sine, diagonal: [middle, middle] };

        // Their eigenvalues may still be real. Another rotation makes the number below the diagonal zero.
        let is_pair = ((above.gt(0) & below.lt(0)) | (above.lt(0) & below.gt(0))) & !is_apart;
        let length = (above.abs() + below.abs()).sqrt();
        let (long, short) = (above.abs().sqrt(), below.abs().sqrt());
        let root = long * short * unit;
        let long = length.eq(0).select(long.splat_like(1), long / or_one(length));
        let short = short / or_one(length);
        let split = root.copy_sign(below);
        let close = Rotated {
            cosine: cosine * long - sine * short,
            sine: cosine * short + sine * long,
            diagonal: [middle + split, middle - split],
        };

        let chosen = |part: fn(&Rotated<'b>) -> Value<'b>| {
            is_apart.select(part(&apart), is_pair.select(part(&pair), part(&close)))
        };
        Blocks {
            is_first,
            cosine: chosen(|x| x.cosine),
            sine: chosen(|x| x.sine),
            diagonal: [is_first.select(chosen(|x| x.diagonal[0]), a), chosen(|x| x.diagonal[1])],
            beside: is_pair.select(root, 0),
            long: is_pair.select(long, 1),
            short: is_pair.select(short.copy_sign(above), 0),
        }
    }

    /// The eigenvalues, complex, batch × size.
    pub(crate) fn values(&self) -> Value<'b> {
        let is_second = previous(self.is_first);
        let real = is_second.select(previous(self.diagonal[1]), self.diagonal[0]);
        real.complex(self.beside - previous(self.beside))
    }

    /// A complex triangle Mᴴ T M with the eigenvalues on its diagonal, and `basis` times M. M is unitary. All are batch × size
    /// × size.
    pub(crate) fn triangle(&self, t: Value<'b>, basis: Value<'b>) -> (Value<'b>, Value<'b>) {
        let is_first = self.is_first;
        let is_second = previous(is_first);
        let (c, s) = (self.cosine, self.sine);
        // The columns of a block of M are the rotation of (long, i · short) and of (i · short, long).
        let own = (c * self.long).complex(-(s * self.short));
        let other = (s * self.long).complex(c * self.short);
        let own = is_second.select(previous(own).conjugate(), own);
        let from_next = is_first.select(other, 0).unsqueeze(1);
        let from_previous = is_second.select(-previous(other).conjugate(), 0).unsqueeze(1);
        let own = (is_first | is_second).select(own, 1).unsqueeze(1);
        let times_m = |x: Value<'b>| {
            let next = x.pad_axis(2, 0, -1, 1);
            let previous = x.pad_axis(2, 0, 1, -1);
            x * own + next * from_next + previous * from_previous
        };
        let (t, basis) = (t.convert(own.dtype()), basis.convert(own.dtype()));
        let t = adjoint(times_m(adjoint(times_m(t))));
        let (row, column) = (position_along(t, 0), position_along(t, 1));
        let diagonal = row.eq(column).select(self.values().unsqueeze(1).broadcast_to(&t.dims()), 0);
        (row.lt(column).select(t, diagonal), times_m(basis))
    }
}

/// A block after a rotation: the rotation, and the diagonal.
struct Rotated<'b> {
    cosine: Value<'b>,
    sine: Value<'b>,
    diagonal: [Value<'b>; 2],
}
