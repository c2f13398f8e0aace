//! The Schur form of Hessenberg matrices, by the implicit QR algorithm (Francis, "The QR transformation", 1961; Golub and
//! Van Loan, "Matrix Computations", § 7.5): a sweep begins with a reflection that the shifts choose, and chases the bulge
//! that it makes down the diagonal. Real matrices take two shifts at a time, so that all numbers stay real.

use stablehlo::{DType, Value};

use crate::common::matrices::{each_part, or_one, position_along};
use crate::common::reflectors::{Reflection, position};

/// The largest number of sweeps for each eigenvalue; three are usual. After that, the result is used as it is.
const MOST_SWEEPS: i64 = 30;
/// The number of sweeps without an eigenvalue after which an exceptional shift is used. It breaks cycles of the usual
/// shifts.
const SWEEPS_BEFORE_EXCEPTIONAL_SHIFT: i64 = 10;

/// T and `basis` times Z, where `H = Z T Zᴴ` for Hessenberg matrices H, batch × size × size. The basis has any number of
/// rows. T is upper triangular, but a real T may have blocks of two rows on its diagonal.
pub(crate) fn schur<'b>(h: Value<'b>, basis: Value<'b>) -> (Value<'b>, Value<'b>) {
    let size = h.dim(1);
    let width = width(h);
    if size < width {
        return (h, basis);
    }
    let (before, behind) = (1, width - 2);
    let h = h.pad(0, &[0, before, before], &[0, behind, behind], &[0, 0, 0]);
    let both = h.builder().concatenate(&[h, basis.pad_axis(2, 0, before, behind)], 1);
    let found = swept(both, size).slice_axis(2, before, before + size);
    (found.slice_axis(1, before, before + size), found.slice_axis(1, h.dim(1), found.dim(1)))
}

/// The number of rows that a reflection changes. It is also the size of the smallest block that is not done.
fn width(h: Value<'_>) -> i64 {
    if h.dtype().is_complex() { 2 } else { 3 }
}

/// Sweeps until all blocks are small. A matrix of `both` (batch × rows × columns) is a square H, with zeros around its
/// `size` rows and columns, and below it the rows of the basis.
fn swept(both: Value<'_>, size: i64) -> Value<'_> {
    let b = both.builder();
    let number = b.splat(0, DType::I32, &[both.dim(0), 1]);
    let (both, block) = deflated(both);
    let start = [b.scalar(0, DType::I32), number, block.first, block.end, both];
    let state = b.while_loop(
        &start,
        |state| state[0].lt(MOST_SWEEPS * size) & state[3].gt(0).reduce_any(&[0, 1]),
        |state| {
            let (waited, both) = (state[1], state[4]);
            let block = Block { first: state[2], end: state[3] };
            let shift = Shift::of(both, &block, waited);
            let (both, left) = deflated(chased(both, &block, &shift));
            let waited = left.end.eq(block.end).select(waited + 1, 0);
            vec![state[0] + 1, waited, left.first, left.end, both]
        },
    );
    state[4]
}

/// The rows from `first` to `end` of each matrix (int32, batch × 1), its last block that is not done. `end` is zero if there
/// is none.
struct Block<'b> {
    first: Value<'b>,
    end: Value<'b>,
}

/// The numbers of the first rows, as many as there are columns (batch × size): those on the main diagonal, and those on the
/// left and on the right of them, zero where there are none.
pub(crate) struct Bands<'b> {
    pub main: Value<'b>,
    pub left: Value<'b>,
    pub right: Value<'b>,
}

impl<'b> Bands<'b> {
    pub(crate) fn of(both: Value<'b>) -> Bands<'b> {
        let size = both.dim(2);
        // The elements of a diagonal are equally far apart in memory.
        let flat = both.slice_axis(1, 0, size).reshape(&[both.dim(0), size * size]);
        let band = |from: i64, to: i64| flat.slice_axis_by(1, from, to, size + 1);
        Bands {
            main: band(0, size * size),
            left: band(size, size * size).pad_axis(1, 0, 1, 0),
            right: band(1, size * size - size).pad_axis(1, 0, 0, 1),
        }
    }
}

/// The element before each, zero or false for the first.
pub(crate) fn previous(x: Value<'_>) -> Value<'_> {
    x.pad_axis(1, 0, 1, -1)
}

/// The element behind each, zero or false for the last.
pub(crate) fn next(x: Value<'_>) -> Value<'_> {
    x.pad_axis(1, 0, -1, 1)
}

/// The matrices with zeros in place of negligible numbers below the diagonal of H, and their last blocks.
fn deflated(both: Value<'_>) -> (Value<'_>, Block<'_>) {
    let bands = Bands::of(both);
    let real = both.dtype().real();
    let left = bands.left.abs();
    let size = bands.main.abs();
    let size = size + previous(size);
    // Beside two zeros, the neighbours on the same diagonal say what is small.
    let size = size.eq(0).select(previous(left) + next(left), size);
    let least = real.smallest_normal() / real.epsilon() * both.dim(2) as f64;
    // A NaN is negligible: nothing else would end the sweeps.
    let is_joined = left.gt((size * real.epsilon()).max(least));

    let (row, column) = (position_along(both, 0), position_along(both, 1));
    let is_kept = is_joined.pad_axis(1, true, 0, both.dim(1) - both.dim(2)).unsqueeze(2) | (row - column).ne(1);
    let position = position(is_joined);
    let is_open = if width(both) == 2 { is_joined } else { is_joined & previous(is_joined) };
    let end = is_open.select(position + 1, 0).reduce_max(&[1]).unsqueeze(1);
    let first = (!is_joined & position.lt(end)).select(position, 0).reduce_max(&[1]).unsqueeze(1);
    (is_kept.select(both, 0), Block { first, end })
}

/// The shifts of a sweep, batch × 1. A complex matrix has one, `number`. A real matrix has two, `number ± i · beside`: a
/// conjugate pair, or the same real number twice.
struct Shift<'b> {
    number: Value<'b>,
    beside: Value<'b>,
}

impl<'b> Shift<'b> {
    /// From the last two rows and columns of each block: their eigenvalues if these are a conjugate pair, else the one that
    /// is nearest to the last number.
    fn of(both: Value<'b>, block: &Block<'b>, waited: Value<'b>) -> Shift<'b> {
        let bands = Bands::of(both);
        let at = |band: Value<'b>, from_end: i64| {
            position(band).eq(block.end - from_end).select(band, 0).reduce_sum(&[1]).unsqueeze(1)
        };
        let [p, q, r, s] = [at(bands.main, 2), at(bands.right, 2), at(bands.left, 1), at(bands.main, 1)];
        let is_stuck = (waited % SWEEPS_BEFORE_EXCEPTIONAL_SHIFT).eq(SWEEPS_BEFORE_EXCEPTIONAL_SHIFT - 1);
        // The exceptional shifts are LAPACK's.
        let size = r.abs() + at(bands.left, 2).abs();
        let exceptional = s + (size * 0.75).convert(s.dtype());
        // Squares of small numbers would vanish.
        let unit = or_one(p.abs() + q.abs() + r.abs() + s.abs());
        let scaled = |x: Value<'b>| each_part(x, |part| part / unit);
        let half = scaled(p - s) * 0.5;
        let product = scaled(q) * scaled(r);
        let square = half * half + product;
        if both.dtype().is_complex() {
            let root = square.sqrt();
            let sum = (half + root).abs().ge((half - root).abs()).select(half + root, half - root);
            let nearest = s - each_part(product / or_one(sum), |part| part * unit);
            return Shift { number: is_stuck.select(exceptional, nearest), beside: size };
        }
        let root = square.abs().sqrt() * unit;
        let is_pair = square.lt(0);
        let middle = (p + s) * 0.5;
        let nearest = middle + (s - middle).lt(0).select(-root, root);
        let number = is_pair.select(middle, nearest);
        Shift {
            number: is_stuck.select(exceptional, number),
            beside: is_stuck.select(size * 0.4375f64.sqrt(), is_pair.select(root, 0)),
        }
    }

    /// A multiple of the first column of the product of H minus each shift, batch × width. `at` gives the elements in the
    /// corner of the block, batch × 1.
    fn column(&self, at: impl Fn(i64, i64) -> Value<'b>) -> Value<'b> {
        let (own, below) = (at(0, 0) - self.number, at(1, 0));
        if own.dtype().is_complex() {
            return own.builder().concatenate(&[own, below], 1);
        }
        let unit = or_one(own.abs() + self.beside.abs() + below.abs());
        let part = below / unit;
        let first = own * (own / unit) + self.beside * (self.beside / unit) + part * at(0, 1);
        let second = part * (own + (at(1, 1) - self.number));
        own.builder().concatenate(&[first, second, part * at(2, 1)], 1)
    }
}

/// A sweep of all blocks. The bulge is at the same rows of all matrices. Where these are not in a matrix's block, its
/// reflection is the identity.
fn chased<'b>(both: Value<'b>, block: &Block<'b>, shift: &Shift<'b>) -> Value<'b> {
    let b = both.builder();
    let is_active = block.end.gt(0);
    let from = is_active.select(block.first, both.dim(1)).reduce_min(&[0, 1]);
    let to = block.end.reduce_max(&[0, 1]) - 1;
    let start = [from, to, block.first, block.end, shift.number, shift.beside, both];
    let state = b.while_loop(
        &start,
        |state| state[0].lt(state[1]),
        |state| {
            let block = Block { first: state[2], end: state[3] };
            let shift = Shift { number: state[4], beside: state[5] };
            let next = moved(state[6], state[0], &block, &shift);
            vec![state[0] + 1, state[1], state[2], state[3], state[4], state[5], next]
        },
    );
    state[6]
}

/// Moves the bulge by one row and column: turns the column on the left of the row `at` (0-d) to zeros below this row.
fn moved<'b>(both: Value<'b>, at: Value<'b>, block: &Block<'b>, shift: &Shift<'b>) -> Value<'b> {
    let (batch, rows, columns) = (both.dim(0), both.dim(1), both.dim(2));
    let width = width(both);
    let zero = at.splat_like(0);
    let corner = both.dynamic_slice(&[zero, at, at - 1], &[batch, width, width]);
    let element = |row: i64, column: i64| {
        corner.slice(&[0, row, column], &[batch, row + 1, column + 1], &[1, 1, 1]).reshape(&[batch, 1])
    };
    let is_first = block.first.eq(at);
    let start = shift.column(|row, column| element(row, column + 1));
    let column = is_first.select(start, corner.slice_axis(2, 0, 1).squeeze(2));
    let is_inside = block.first.le(at) & (position(column) + at).lt(block.end) & (block.end - 1).gt(at);
    let Reflection { vector, factor, result } = Reflection::of(is_inside.select(column, 0), zero);

    let vector = vector.unsqueeze(2);
    let factor = factor.unsqueeze(2);
    let across = both.dynamic_slice(&[zero, at, zero], &[batch, width, columns]);
    let inner = (vector.conjugate() * across).reduce_sum(&[1]).unsqueeze(1);
    let turned = across - vector * factor.conjugate() * inner;
    // The column is what the reflection was made for.
    let is_turned = (block.first.lt(at) & (block.end - 1).gt(at)).unsqueeze(2) & (position_along(across, 1) + 1).eq(at);
    let result = result.convert(both.dtype()).unsqueeze(2);
    let result = position_along(vector, 0).eq(0).select(result, 0);
    let both = both.dynamic_update_slice(is_turned.select(result, turned), &[zero, at, zero]);

    let vector = vector.reshape(&[batch, 1, width]);
    let down = both.dynamic_slice(&[zero, zero, at], &[batch, rows, width]);
    let inner = (vector * down).reduce_sum(&[2]).unsqueeze(2);
    both.dynamic_update_slice(down - inner * factor * vector.conjugate(), &[zero, zero, at])
}
