//! LDL factors of symmetric and Hermitian matrices that may be indefinite, with the diagonal pivoting of Bunch and
//! Kaufman ("Some stable methods for calculating inertia and solving symmetric linear systems", 1977). They are
//! packed as in LAPACK's sytrf and hetrf, lower triangle: columns of L, and blocks of D with one or two rows.

use stablehlo::{DType, DTypes, Value};

use crate::check::Check;
use crate::common::matrices::{
    adjoint, batched, diagonal, each_part, in_units, moved_rows, position_along, same_batch, transposed, unbatched,
};
use crate::common::sorting::sorted;
use crate::error::{Error, ErrorKind, Result};
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["linalg_ldl_factor_ex"], |cx| {
        let factors = factors(cx.tensor("self")?, cx.bool("hermitian")?);
        let why = format!("D[{0},{0}] is zero, so the matrix is singular.", Check::LOW);
        cx.check_info(factors[2], "torch.linalg.ldl_factor_ex", ErrorKind::Runtime, &why)?;
        Ok(factors)
    })
    .takes(&["self"], DTypes::INEXACT),
    one(&["linalg_ldl_solve"], |cx| {
        let (packed, pivots) = (cx.tensor("LD")?, cx.tensor("pivots")?);
        let message = "Pivots given to ldl_solve must all satisfy |pivot| <= LD.size(-2). Did you properly pass the result \
                       of ldl_factor?";
        let most = packed.dim(packed.rank() - 2);
        cx.check_from_to(pivots, -most, most, Error::runtime(message));
        solution(packed, pivots, cx.tensor("B")?, cx.bool("hermitian")?)
    })
    .takes(&["LD"], DTypes::INEXACT),
];

/// A diagonal element is a pivot if no element of its row or column exceeds it by more than this factor. The value
/// bounds the growth of elements equally for blocks of one and of two rows.
const GROWTH: f64 = 0.640_388_203_202_208; // (1 + √17) / 8

fn factors<'b>(a: Value<'b>, is_hermitian: bool) -> Vec<Value<'b>> {
    let b = a.builder();
    let matrix = batched(a);
    let (batch, n) = (matrix.dim(0), matrix.dim(1));
    // L is the same in these units, and D has them.
    let (matrix, unit) = in_units(matrix, &[1, 2]);
    let of_row = |x: Value<'b>| x.unsqueeze(2);
    let mirrored = |x| if is_hermitian { adjoint(x) } else { transposed(x) };
    let state = [
        b.scalar(0, DType::I32),
        b.splat(0, DType::I32, &[batch, 1]),
        position_along(matrix, 0).ge(position_along(matrix, 1)).select(matrix, mirrored(matrix)),
        matrix.splat_like(0),
        b.splat(0, DType::I32, &[batch, n]),
        b.splat(0, DType::I32, &[batch, 1]),
    ];
    let state = if matrix.numel() == 0 {
        state.to_vec()
    } else {
        b.while_loop(
            &state,
            |state| state[0].lt(n),
            |state| {
                // The remaining matrix is zero in the rows and columns that are done.
                let (round, k, rest, packed, pivots, info) =
                    (state[0], state[1], state[2], state[3], state[4], state[5]);
                let index = b.iota(DType::I32, &[batch, n], 1);
                let at = |x: Value<'b>, i: Value<'b>| index.eq(i).select(x, 0).reduce_sum(&[1]).unsqueeze(1);
                let column = |x: Value<'b>, i: Value<'b>| {
                    b.iota(DType::I32, &x.dims(), 2).eq(of_row(i)).select(x, 0).reduce_sum(&[2])
                };
                let largest = |x: Value<'b>| x.reduce_max(&[1]).unsqueeze(1);

                let own = column(rest, k);
                let candidates = index.gt(k).select(size(own), 0.0);
                let (diagonal, beside) = (size(at(own, k)), largest(candidates));
                let chosen = (index.gt(k) & candidates.eq(beside)).select(index, n).reduce_min(&[1]).unsqueeze(1);
                let across = column(rest, chosen);
                let farthest = largest(index.ne(chosen).select(size(across), 0.0));
                let stays = diagonal.ge(beside * GROWTH) | (diagonal * farthest).ge(beside * beside * GROWTH);
                let is_pair = !stays & size(at(across, chosen)).lt(farthest * GROWTH);
                let last = k + is_pair.convert(DType::I32);
                let to = stays.select(k, chosen);

                let rest = exchanged(exchanged(rest, 1, last, to), 2, last, to);
                let (first, second) = (column(rest, k), is_pair.select(column(rest, last), 0));
                let (top, side, bottom) = (at(first, k), at(first, k + 1), at(second, k + 1));
                let below = |x: Value<'b>| index.gt(last).select(x, 0);
                let (first, second) = (below(first), below(second));
                let block = Block { top, side, bottom, is_pair };
                let (left, right) = block.divide_columns(first, second, is_hermitian);
                let across = |x: Value<'b>| if is_hermitian { x.conjugate() } else { x }.unsqueeze(1);
                let rest = rest - left.unsqueeze(2) * across(first) - right.unsqueeze(2) * across(second);
                let (row, col) = (position_along(rest, 0), position_along(rest, 1));
                let rest = (row.gt(of_row(last)) & col.gt(of_row(last))).select(rest, 0);

                let of_d = |x: Value<'b>| each_part(x, |part| part * unit.squeeze(2));
                let left = index.eq(k).select(of_d(top), (index.eq(k + 1) & is_pair).select(of_d(side), left));
                let right = index.eq(k + 1).select(of_d(bottom), right);
                let packed = col.eq(of_row(k)).select(of_row(left), packed);
                let packed = (col.eq(of_row(last)) & of_row(is_pair)).select(of_row(right), packed);
                let number = is_pair.select(-to - 1, to + 1);
                let pivots = (index.ge(k) & index.le(last)).select(number, pivots);
                let is_zero = diagonal.eq(0.0) & beside.eq(0.0) & k.lt(n) & info.eq(0);
                vec![round + 1, last + 1, rest, packed, pivots, is_zero.select(k + 1, info)]
            },
        )
    };
    let (packed, pivots, info) = (state[3], state[4], state[5]);
    vec![unbatched(packed, a), unbatched(pivots, a), unbatched(info.reshape(&[batch]), a)]
}

/// Magnitudes as in LAPACK: `|re| + |im|`.
fn size(x: Value<'_>) -> Value<'_> {
    if x.dtype().is_complex() { x.real().abs() + x.imag().abs() } else { x.abs() }
}

/// The matrices (batch × rows × columns) with two rows (`axis` 1) or two columns (`axis` 2) exchanged.
fn exchanged<'b>(x: Value<'b>, axis: usize, one: Value<'b>, other: Value<'b>) -> Value<'b> {
    let index = x.builder().iota(DType::I32, &x.dims(), axis);
    let (one, other) = (one.unsqueeze(2), other.unsqueeze(2));
    let at = |i: Value<'b>| index.eq(i).select(x, 0).reduce_sum(&[axis]).unsqueeze(axis);
    index.eq(one).select(at(other), index.eq(other).select(at(one), x))
}

/// A block of D: `top` alone, or [[top, side], [side, bottom]].
struct Block<'b> {
    top: Value<'b>,
    side: Value<'b>,
    bottom: Value<'b>,
    is_pair: Value<'b>,
}

impl<'b> Block<'b> {
    /// Multiplies the columns by the inverse of the block, from the right. Below a single zero pivot all elements are
    /// zero.
    fn divide_columns(&self, first: Value<'b>, second: Value<'b>, is_hermitian: bool) -> (Value<'b>, Value<'b>) {
        let Block { top, side, bottom, is_pair } = *self;
        let mirror = if is_hermitian { side.conjugate() } else { side };
        let determinant = top * bottom - side * mirror;
        let lone = top.eq(0).select(first, first / top);
        let left = is_pair.select((first * bottom - second * side) / determinant, lone);
        (left, is_pair.select((second * top - first * mirror) / determinant, 0))
    }
}

fn solution<'b>(packed: Value<'b>, pivots: Value<'b>, rhs: Value<'b>, is_hermitian: bool) -> Result<Value<'b>> {
    let b = packed.builder();
    let (packed, rhs) = same_batch(packed, rhs)?;
    if rhs.numel() == 0 || packed.numel() == 0 {
        return Ok(rhs);
    }
    let n = packed.dim(packed.rank() - 1);
    let pivots = pivots.broadcast_to(&[&packed.dims()[..packed.rank() - 2], &[n]].concat());
    let flat = batched(packed);
    let batch = flat.dim(0);
    let pivots = pivots.convert(DType::I32).reshape(&[batch, n]);
    let in_pair = pivots.lt(0);
    let is_second = in_pair & (in_pair.convert(DType::I32).scan(1, 0.into(), |a, x| a + x) % 2).eq(0);
    let is_first = in_pair & !is_second;

    // LAPACK does not apply later exchanges to earlier columns of L, so they are applied to their rows here.
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), flat, b.iota(DType::I32, &[batch, n], 1)],
        |state| state[0].lt(n),
        |state| {
            let (step, matrix, rows) = (state[0], state[1], state[2]);
            let index = b.iota(DType::I32, &[batch, n], 1);
            let now = |x: Value<'b>| index.eq(step).select(x.convert(DType::I32), 0).reduce_sum(&[1]).unsqueeze(1);
            let own = step.broadcast_to(&[batch, 1]);
            let other = now(is_first).ne(0).select(own, now(pivots).abs() - 1);
            let start = own - now(is_second);
            let moved = exchanged(matrix, 1, own, other);
            let is_done = b.iota(DType::I32, &matrix.dims(), 2).lt(start.unsqueeze(2));
            let rows = exchanged(rows.unsqueeze(2), 1, own, other).squeeze(2);
            vec![step + 1, is_done.select(moved, matrix), rows]
        },
    );
    let (moved, rows) = (state[1], state[2]);
    let (row, column) = (position_along(moved, 0), position_along(moved, 1));
    let side_of_d = row.eq(column + 1) & is_first.unsqueeze(1);
    let lower = side_of_d.select(moved.splat_like(0), moved);
    let rows = unbatched(rows, packed);
    let lower = unbatched(lower, packed);

    let half = lower.triangular_solve(moved_rows(rhs, rows), true, true, true, false);
    let half = batched(half);
    let block = (row.eq(column) | side_of_d).select(flat, 0);
    let (block, unit) = in_units(block, &[1, 2]);
    let top = diagonal(block).unsqueeze(2);
    let below = |x: Value<'b>| x.slice_axis(1, 1, n).pad_axis(1, 0, 0, 1);
    let above = |x: Value<'b>| x.slice_axis(1, 0, n - 1).pad_axis(1, 0, 1, 0);
    let side = row.eq(column + 1).select(block, 0).reduce_sum(&[1]).unsqueeze(2);
    let mirror = if is_hermitian { side.conjugate() } else { side };
    let determinant = top * below(top) - side * mirror;
    let as_first = (below(top) * half - mirror * below(half)) / determinant;
    let as_second = (above(top) * half - above(side) * above(half)) / above(determinant);
    let (is_first, is_second) = (is_first.unsqueeze(2), is_second.unsqueeze(2));
    let divided = is_first.select(as_first, is_second.select(as_second, half / top));
    let divided = each_part(divided, |part| part / unit);

    let upper = if is_hermitian { adjoint(lower) } else { transposed(lower) };
    let whole = upper.triangular_solve(unbatched(divided, rhs), true, false, true, false);
    let (_, back) = sorted(rows, rows.rank() - 1, false);
    Ok(moved_rows(whole, back.convert(DType::I32)))
}
