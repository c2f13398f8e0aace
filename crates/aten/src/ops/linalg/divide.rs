//! Eigenvalues of tridiagonal matrices and singular values of bidiagonal ones, by divide and conquer. Two parts and the
//! numbers between them are a diagonal matrix plus one of rank one: Cuppen, "A divide and conquer method for the symmetric
//! tridiagonal eigenproblem", 1981; Gu and Eisenstat, "A divide-and-conquer algorithm for the bidiagonal SVD", 1995.
//!
//! The parts of one matrix stand on the diagonal of one value. At first, each has one column. One loop joins them, all of
//! one size at once. A program for each size of the parts would do less arithmetic, but take long to compile.

use stablehlo::{DType, Value};

use crate::common::matrices::{identity, position_along, times};
use crate::ops::linalg::secular::{Form, RankOne, Roots};

/// Numbers below this many rounding errors of the whole matrix are taken as zero.
const NEGLIGIBLE: f64 = 4.0;

/// Eigenvalues, ascending, and eigenvectors of symmetric matrices with this diagonal (batch × size) and these numbers
/// beside it (batch × size − 1).
pub(crate) fn eigh<'b>(diagonal: Value<'b>, beside: Value<'b>) -> (Value<'b>, Value<'b>) {
    let b = diagonal.builder();
    let (size, whole) = (diagonal.dim(1), whole(diagonal));
    let norm = norm(diagonal, beside, 2.0);
    // The padding is larger than each eigenvalue, and apart from the rest.
    let padding = (norm * 2.0).broadcast_to(&[diagonal.dim(0), whole - size]);
    let diagonal = b.concatenate(&[diagonal, padding], 1);
    let beside = beside.pad_axis(1, 0, 0, whole - size + 1);
    // Without the number between them, two parts lack it in the corners where they meet.
    let before = beside.slice_axis(1, 0, whole - 1).pad_axis(1, 0, 1, 0);
    let values = diagonal - beside.abs() - before.abs();
    let state = [b.scalar(1, DType::I32), norm, beside, values, identities(values)];
    let state = b.while_loop(
        &state,
        |state| state[0].lt(whole),
        |state| {
            let (half, norm, beside, at, vectors) = (state[0], state[1], state[2], state[3], state[4]);
            let halves = Halves::of(half, whole);
            let between = number_at(beside, halves.end);
            let z = element_of_rows(vectors, halves.edge);
            let z = (halves.is_left | between.ge(0.0)).select(z, -z);
            let rho = between.abs();
            let matters = (rho * z.abs()).gt(norm * (NEGLIGIBLE * z.dtype().epsilon()));
            let z = matters.select(z, 0.0);
            let roots = RankOne { form: Form::Plain, at, z, rho, norm, block: halves.pair }.roots();
            let vectors = times(vectors, unit_columns(roots.quotients, &roots));
            vec![half * 2, norm, beside, roots.values, vectors]
        },
    );
    (state[3].slice_axis(1, 0, size), state[4].slice_axis(1, 0, size).slice_axis(2, 0, size))
}

/// The next power of two.
fn whole(diagonal: Value<'_>) -> i64 {
    let mut whole = 1;
    while whole < diagonal.dim(1) {
        whole *= 2;
    }
    whole
}

/// An identity matrix for each row.
fn identities(x: Value<'_>) -> Value<'_> {
    identity(x.unsqueeze(2), x.dim(1))
}

/// A number that no eigenvalue or singular value exceeds, batch × 1. One for matrices of zeros.
fn norm<'b>(diagonal: Value<'b>, beside: Value<'b>, times: f64) -> Value<'b> {
    let largest = |x: Value<'b>| x.abs().reduce_max(&[1]).unsqueeze(1);
    let norm = largest(diagonal) + largest(beside) * times;
    norm.eq(0.0).select(norm.splat_like(1), norm)
}

/// The halves of the pairs of parts that a step joins, for each position. All int32 or bool, 1 × size.
struct Halves<'b> {
    pair: Value<'b>,
    is_left: Value<'b>,
    /// The last position of the left half of the pair.
    end: Value<'b>,
    /// The position of the own half that is next to the other half.
    edge: Value<'b>,
}

impl<'b> Halves<'b> {
    fn of(half: Value<'b>, size: i64) -> Halves<'b> {
        let position = half.builder().iota(DType::I32, &[1, size], 1);
        let pair = position / (half * 2);
        let end = pair * (half * 2) + half - 1;
        let is_left = position.le(end);
        Halves { pair, is_left, end, edge: is_left.select(end, end + 1) }
    }
}

/// The number (of batch × size) at each place (1 × size). Zero behind the end.
fn number_at<'b>(numbers: Value<'b>, place: Value<'b>) -> Value<'b> {
    let rows = numbers.unsqueeze(2).broadcast_to(&[numbers.dim(0), numbers.dim(1), numbers.dim(1)]);
    element_of_rows(rows, place)
}

/// The element of each column in its `row` (1 × columns). Zero if there is no such row.
fn element_of_rows<'b>(matrix: Value<'b>, row: Value<'b>) -> Value<'b> {
    position_along(matrix, 0).eq(row.unsqueeze(1)).select(matrix, 0.0).reduce_sum(&[1])
}

/// The columns with length one, and unit vectors for the columns that are no roots.
fn unit_columns<'b>(columns: Value<'b>, roots: &Roots<'b>) -> Value<'b> {
    // Squares of large numbers would be infinite.
    let columns = columns / columns.abs().reduce_max(&[1]).unsqueeze(1);
    let length = columns.square().reduce_sum(&[1]).sqrt().unsqueeze(1);
    roots.is_root.select(columns / length, roots.units)
}

/// `U · S · Vᵀ` of square upper bidiagonal matrices with this diagonal (batch × size) and these numbers above it
/// (batch × size − 1): U, S ascending, and V.
pub(crate) fn svd<'b>(diagonal: Value<'b>, above: Value<'b>) -> (Value<'b>, Value<'b>, Value<'b>) {
    let b = diagonal.builder();
    let (batch, size) = (diagonal.dim(0), diagonal.dim(1));
    let whole = whole(diagonal);
    let norm = norm(diagonal, above, 1.0);
    // The padding is larger than each singular value, and apart from the rest. It comes first: the last column of a part
    // must be one of the matrix.
    let padding = (norm * 4.0).broadcast_to(&[batch, whole - size]);
    let diagonal = b.concatenate(&[padding, diagonal], 1);
    let above = above.pad_axis(1, 0, whole - size, 1);
    // A part has one more column than rows: the row below it belongs to no part, and has no value yet.
    let (s, one) = (diagonal.splat_like(0), identities(diagonal));
    let state = [b.scalar(1, DType::I32), norm, diagonal, above, s, one, one];
    // The last step joins the whole part and the row below it.
    let state = b.while_loop(
        &state,
        |state| state[0].le(whole),
        |state| {
            let (u, s, v) = joined(Halves::of(state[0], whole), state);
            vec![state[0] * 2, state[1], state[2], state[3], s, u, v]
        },
    );
    let kept = |x: Value<'b>| x.slice_axis(1, whole - size, whole).slice_axis(2, 0, size);
    (kept(state[5]), state[4].slice_axis(1, 0, size), kept(state[6]))
}

/// Joins the halves of pairs by the row between them, which has the number of the diagonal in the last column of the
/// left half and the number above the diagonal in the first column of the right half. A half has one row less than
/// columns. The last column of V in each half is its null vector.
fn joined<'b>(halves: Halves<'b>, state: &[Value<'b>]) -> (Value<'b>, Value<'b>, Value<'b>) {
    let (half, norm, diagonal, above, s, u, v) = (state[0], state[1], state[2], state[3], state[4], state[5], state[6]);
    let position = s.builder().iota(DType::I32, &[1, s.dim(1)], 1);
    let last = halves.end + half;
    let (is_between, is_last) = (position.eq(halves.end), position.eq(last));
    let number = halves.is_left.select(number_at(diagonal, halves.end), number_at(above, halves.end));
    let met = element_of_rows(v, halves.edge) * number;
    // The null vectors turn into one that the row meets, with `first` as its number, and one that it does not meet.
    let (left, right) = (number_at(met, halves.end), number_at(met, last));
    let largest = left.abs().max(right.abs());
    let is_met = largest.gt(0.0);
    let (left, right) = (left / largest, right / largest);
    let length = (left.square() + right.square()).sqrt();
    let first = is_met.select(length * largest, 0.0);
    let (cosine, sine) = (is_met.select(left / length, 1.0), is_met.select(right / length, 0.0));
    let least = norm * (NEGLIGIBLE * norm.dtype().epsilon());
    let matters = met.abs().ge(least);
    let z = is_between.select(first.max(least), (matters & !is_last).select(met, 0.0));
    let at = is_between.select(s.splat_like(0), matters.select(s.max(least * 0.5), s));
    // The null vector stays behind all others.
    let at = is_last.select(norm * 16.0, at);
    let roots = RankOne { form: Form::Squared, at, z, rho: s.splat_like(1), norm, block: halves.pair }.roots();
    // The vectors of the matrix that has z as one row and the rest of `at` on its diagonal.
    let right = unit_columns(roots.quotients, &roots);
    let is_same = halves.pair.unsqueeze(2).eq(halves.pair.unsqueeze(1));
    let (between_row, last_row) = (is_same & is_between.unsqueeze(2), is_same & is_last.unsqueeze(2));
    let left = (between_row & roots.is_root).select(right.splat_like(-1), roots.at * roots.quotients);
    let u = times(u, unit_columns(left, &roots));
    let column = |x: Value<'b>| x.unsqueeze(1);
    let (top, null) = (element_of_rows(right, halves.end), is_last.convert(s.dtype()));
    let right = between_row.select(column(cosine * top - sine * null), right);
    let right = last_row.select(column(sine * top + cosine * null), right);
    (u, roots.values, times(v, right))
}
