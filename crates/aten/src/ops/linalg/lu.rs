//! LU factors with partial pivoting; solutions, inverses and determinants from them.

use stablehlo::{DType, DTypes, Value};

use crate::check::Check;
use crate::common::completed::{completed, completed_pivots, shaped, solution_extents, zeroed};
use crate::common::matrices::{
    adjoint, batched, diagonal, first_failure, identity, moved_rows, position_along, rows_at, same_batch, times,
    transposed, triangle, unbatched,
};
use crate::common::sorting::sorted;
use crate::cx::{Arg, Cx};
use crate::error::{Error, ErrorKind, Result};
use crate::row::{Row, many, one};
use crate::strides::contiguous_strides;

pub(crate) const ROWS: &[Row] = &[
    many(&["linalg_lu_factor_ex"], |cx| {
        let a = cx.tensor("A")?;
        let lu = Lu::of(completed(a), cx.bool("pivot")?);
        let info = lu.info();
        let why = format!(
            "U[{0},{0}] is zero and using it on lu_solve would result in a division by zero. If you still want to \
             perform the factorization, consider calling linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)",
            Check::LOW
        );
        cx.check_info(info, "torch.linalg.lu_factor_ex", ErrorKind::Runtime, &why)?;
        Ok([lu.results(a), vec![shaped(info, &a.extents(), &[])]].concat())
    })
    .takes(&["A"], DTypes::INEXACT)
    .bounded(),
    many(&["linalg_lu"], |cx| {
        let a = cx.tensor("A")?;
        let lu = Lu::of(a, cx.bool("pivot")?);
        let permutation = if cx.bool("pivot")? { lu.permutation_matrix() } else { cx.b().splat(0, a.dtype(), &[0]) };
        let (l, u) = lu.unpacked();
        Ok(vec![permutation, l, u])
    })
    .takes(&["A"], DTypes::INEXACT),
    many(&["lu_unpack"], |cx| {
        let (given, pivots) = (cx.tensor("LU_data")?, cx.tensor("LU_pivots")?);
        let factors = completed(given);
        let pivots = completed_pivots(pivots, given);
        if cx.bool("unpack_pivots")? {
            let message = "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive.Did you properly pass the \
                           result of lu_factor?";
            cx.check_from_to(pivots, 1, factors.dim(factors.rank() - 2), Error::runtime(message));
        }
        let lu = Lu::from_pivots(factors, pivots);
        let none = cx.b().splat(0, lu.factors.dtype(), &[0]);
        let (mut permutation, mut l, mut u) = (none, none, none);
        if cx.bool("unpack_data")? {
            let (lower, upper) = lu.unpacked();
            (l, u) = (shaped(lower, &given.extents(), &[0, 1]), shaped(upper, &given.extents(), &[0, 1]));
        }
        if cx.bool("unpack_pivots")? {
            permutation = shaped(lu.permutation_matrix(), &given.extents(), &[0, 1]);
        }
        Ok(vec![permutation, l, u])
    })
    .bounded(),
    one(&["linalg_lu_solve"], |cx| {
        let (factors, b) = (cx.tensor("LU")?, cx.tensor("B")?);
        let pivots = completed_pivots(cx.tensor("pivots")?, factors);
        for (low, high, bound) in
            [(1, i64::from(i32::MAX) - 1, "greater or equal to 1"), (0, factors.dim(factors.rank() - 2), "smaller or equal to LU.size(-2)")]
        {
            let hint = "Did you properly pass the result of lu_factor?";
            let message = format!("Pivots given to lu_solve must all be {bound}. {hint}");
            cx.check_from_to(pivots, low, high, Error::runtime(message));
        }
        let (factors, b) = same_batch(factors, b)?;
        let left = cx.bool("left")?;
        let extents = solution_extents(factors, b, left);
        let pivots = pivots.broadcast_to(&[&b.dims()[..b.rank() - 2], &pivots.dims()[pivots.rank() - 1..]].concat());
        let lu = Lu::from_pivots(completed(factors), pivots);
        Ok(shaped(lu.solve(zeroed(b), left, cx.bool("adjoint")?), &extents, &[0, 1]))
    })
    .takes(&["LU"], DTypes::INEXACT)
    .bounded(),
    many(&["linalg_inv_ex"], |cx| {
        let given = cx.tensor("A")?;
        let a = completed(given);
        let lu = Lu::of(a, true);
        let info = lu.info();
        let why = format!(
            "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular.",
            Check::LOW
        );
        cx.check_info(info, "linalg.inv_ex", ErrorKind::Linalg, &why)?;
        let inverse = lu.solve(identity(a, a.dim(a.rank() - 1)), true, false);
        Ok(vec![shaped(inverse, &given.extents(), &[0, 1]), shaped(info, &given.extents(), &[])])
    })
    .takes(&["A"], DTypes::INEXACT)
    .bounded(),
    many(&["_linalg_solve_ex"], |cx| {
        let (a, b) = (cx.tensor("A")?, cx.tensor("B")?);
        let lu = Lu::of(completed(a), true);
        let outer = a.rank() - 1;
        let is_like_rows = b.dims() == a.dims()[..outer] && b.extents() == a.extents()[..outer];
        let is_vector = b.rank() == 1 || (b.rank() == outer && is_like_rows);
        let left = cx.bool("left")? || is_vector;
        let columns = if is_vector { b.unsqueeze(b.rank()) } else { b };
        let (matrices, sides) = same_batch(a, columns)?;
        let extents = solution_extents(matrices, sides, left);
        let (wide, sides) = lu.broadcast_to_batch(zeroed(sides))?;
        let solution = shaped(wide.solve(sides, left, false), &extents, &[0, 1]);
        let solution = if is_vector { solution.squeeze(solution.rank() - 1) } else { solution };
        let (info, why) = (lu.info(), "The solver failed because the input matrix is singular.");
        cx.check_info(info, "torch.linalg.solve_ex", ErrorKind::Linalg, why)?;
        Ok([vec![solution], lu.results(a), vec![shaped(info, &a.extents(), &[])]].concat())
    })
    .takes(&["A"], DTypes::INEXACT)
    .bounded(),
    many(&["_linalg_det"], |cx| {
        let a = cx.tensor("A")?;
        let lu = Lu::of_argument(cx, "A")?;
        let diagonal = diagonal(lu.factors);
        let product = diagonal.reduce_prod(&[diagonal.rank() - 1]);
        let determinant = product * lu.sign().convert(product.dtype());
        Ok([vec![shaped(determinant, &a.extents(), &[])], lu.results(a)].concat())
    })
    .takes(&["A"], DTypes::INEXACT)
    .bounded(),
    many(&["_linalg_slogdet"], |cx| {
        let a = cx.tensor("A")?;
        let lu = Lu::of_argument(cx, "A")?;
        let diagonal = diagonal(lu.factors);
        let last = diagonal.rank() - 1;
        let size = diagonal.abs();
        let unit = if diagonal.dtype().is_complex() {
            size.eq(0).select(diagonal.splat_like(0), diagonal / size.convert(diagonal.dtype()))
        } else {
            diagonal.sign()
        };
        let sign = unit.reduce_prod(&[last]) * lu.sign().convert(unit.dtype());
        let numbers = [sign, size.log().reduce_sum(&[last])].map(|value| shaped(value, &a.extents(), &[]));
        Ok([numbers.to_vec(), lu.results(a)].concat())
    })
    .takes(&["A"], DTypes::INEXACT)
    .bounded(),
];

/// The number of columns that are eliminated one by one before the rest of the matrix is updated by one product.
const PANEL: i64 = 128;

/// `P · L · U` of the matrices in the last two dimensions, packed as in LAPACK.
struct Lu<'b> {
    factors: Value<'b>,
    /// The row that each step exchanged with its own row, from 0.
    exchanged: Value<'b>,
    /// For each row of `L · U`, the row of the matrix that it equals.
    rows: Value<'b>,
}

impl<'b> Lu<'b> {
    /// Right-looking elimination by panels (Golub and Van Loan, "Matrix Computations", 3.4).
    fn of(a: Value<'b>, pivot: bool) -> Lu<'b> {
        let b = a.builder();
        let mut matrix = batched(a);
        let (batch, height, width) = (matrix.dim(0), matrix.dim(1), matrix.dim(2));
        let steps = height.min(width);
        let mut exchanged = Vec::new();
        let mut rows = b.iota(DType::I32, &[batch, height], 1);
        let mut start = 0;
        while start < steps {
            let end = (start + PANEL).min(steps);
            let below = matrix.slice_axis(1, start, height);
            let (panel, pivots, order) = eliminated(below.slice_axis(2, start, end), pivot);
            exchanged.push(pivots + start);
            let moved = rows_at(below, order);
            let done = moved.slice_axis(2, 0, start);
            let mut parts = vec![done, panel];
            if end < width {
                let size = end - start;
                let rest = moved.slice_axis(2, end, width);
                let top =
                    panel.slice_axis(1, 0, size).triangular_solve(rest.slice_axis(1, 0, size), true, true, true, false);
                let left = panel.slice_axis(1, size, height - start);
                let bottom = rest.slice_axis(1, size, height - start) - times(left, top);
                parts.push(b.concatenate(&[top, bottom], 1));
            }
            let updated = b.concatenate(&parts, 2);
            matrix = b.concatenate(&[matrix.slice_axis(1, 0, start), updated], 1);
            let tail = rows.slice_axis(1, start, height).unsqueeze(2);
            rows = b.concatenate(&[rows.slice_axis(1, 0, start), rows_at(tail, order).squeeze(2)], 1);
            start = end;
        }
        if exchanged.is_empty() {
            exchanged.push(b.splat(0, DType::I32, &[batch, 0]));
        }
        Lu {
            factors: unbatched(matrix, a),
            exchanged: unbatched(b.concatenate(&exchanged, 1), a),
            rows: unbatched(rows, a),
        }
    }

    /// The factors of the argument, or of its transpose, as PyTorch's gradients expect.
    fn of_argument(cx: &Cx<'b>, name: &str) -> Result<Lu<'b>> {
        let a = completed(cx.tensor(name)?);
        Ok(Lu::of(if factors_transpose(cx, name) { transposed(a) } else { a }, true))
    }

    /// The factors and the pivots of the matrices `a`, which may have padding.
    fn results(&self, a: Value<'b>) -> Vec<Value<'b>> {
        vec![shaped(self.factors, &a.extents(), &[0, 1]), shaped(self.pivots(), &a.extents(), &[0])]
    }

    /// Reads LAPACK's pivots, which count from 1.
    fn from_pivots(factors: Value<'b>, pivots: Value<'b>) -> Lu<'b> {
        let b = factors.builder();
        let exchanged = pivots.convert(DType::I32) - 1;
        let height = factors.dim(factors.rank() - 2);
        let steps = pivots.dim(pivots.rank() - 1);
        let flat = exchanged.reshape(&[batched(factors).dim(0), steps]);
        let rows = b.iota(DType::I32, &[flat.dim(0), height], 1);
        if flat.numel() == 0 {
            return Lu { factors, exchanged, rows: unbatched(rows, factors) };
        }
        let state = b.while_loop(
            &[b.scalar(0, DType::I32), flat, rows],
            |state| state[0].lt(steps),
            |state| {
                let (step, flat, rows) = (state[0], state[1], state[2]);
                let zero = b.scalar(0, DType::I32);
                let to = flat.dynamic_slice(&[zero, step], &[flat.dim(0), 1]);
                let number = b.iota(DType::I32, &rows.dims(), 1);
                let own = rows.dynamic_slice(&[zero, step], &[flat.dim(0), 1]);
                let other = number.eq(to).select(rows, 0).reduce_sum(&[1]).unsqueeze(1);
                let swapped = number.eq(step).select(other, number.eq(to).select(own, rows));
                vec![step + 1, flat, swapped]
            },
        );
        Lu { factors, exchanged, rows: unbatched(state[2], factors) }
    }

    fn broadcast_to_batch(&self, b: Value<'b>) -> Result<(Lu<'b>, Value<'b>)> {
        let (factors, b) = same_batch(self.factors, b)?;
        let wide = |x: Value<'b>| x.broadcast_to(&[&b.dims()[..b.rank() - 2], &x.dims()[x.rank() - 1..]].concat());
        Ok((Lu { factors, exchanged: wide(self.exchanged), rows: wide(self.rows) }, b))
    }

    fn pivots(&self) -> Value<'b> {
        self.exchanged + 1
    }

    /// The 1-based index of the first zero pivot, or 0.
    fn info(&self) -> Value<'b> {
        first_failure(diagonal(self.factors).eq(0))
    }

    /// The determinant of the permutation.
    fn sign(&self) -> Value<'b> {
        let last = self.exchanged.rank() - 1;
        let step = self.factors.builder().iota(DType::I32, &self.exchanged.dims(), last);
        let odd = self.exchanged.ne(step).convert(DType::I32).reduce_sum(&[last]) % 2;
        -(odd * 2) + 1
    }

    fn unpacked(&self) -> (Value<'b>, Value<'b>) {
        let x = self.factors;
        let rank = x.rank();
        let short = x.dim(rank - 2).min(x.dim(rank - 1));
        let l = x.slice_axis(rank - 1, 0, short);
        let u = triangle(x.slice_axis(rank - 2, 0, short), false);
        let (row, column) = (position_along(l, 0), position_along(l, 1));
        let l = row.gt(column).select(l, row.eq(column).convert(x.dtype()));
        (l, u)
    }

    fn permutation_matrix(&self) -> Value<'b> {
        let dims = self.rows.dims();
        let height = dims[dims.len() - 1];
        let square = [dims.as_slice(), &[height]].concat();
        let number = self.rows.builder().iota(DType::I32, &square, dims.len() - 1);
        number.eq(self.rows.unsqueeze(dims.len() - 1)).convert(self.factors.dtype())
    }

    /// Solves `A · X = b`, or `X · A = b` unless `left`. Uses the adjoint of A if `by_adjoint`.
    fn solve(&self, b: Value<'b>, left: bool, by_adjoint: bool) -> Value<'b> {
        if !left {
            return adjoint(self.solve(adjoint(b), true, !by_adjoint));
        }
        let factors = self.factors;
        if by_adjoint {
            let factors = adjoint(factors);
            let half = factors.triangular_solve(b, true, true, false, false);
            let whole = factors.triangular_solve(half, true, false, true, false);
            // Undoes the row exchanges.
            let (_, back) = sorted(self.rows, self.rows.rank() - 1, false);
            moved_rows(whole, back.convert(DType::I32))
        } else {
            let half = factors.triangular_solve(moved_rows(b, self.rows), true, true, true, false);
            factors.triangular_solve(half, true, false, false, false)
        }
    }
}

/// Eliminates column by column below the diagonal. Returns the packed factors, the row that each step exchanged with
/// its own, and the final order of the rows.
fn eliminated<'b>(panel: Value<'b>, pivot: bool) -> (Value<'b>, Value<'b>, Value<'b>) {
    let b = panel.builder();
    let (batch, height, width) = (panel.dim(0), panel.dim(1), panel.dim(2));
    let steps = height.min(width);
    let pivots = b.splat(0, DType::I32, &[batch, steps]);
    let order = b.iota(DType::I32, &[batch, height], 1);
    if batch == 0 {
        return (panel, pivots, order);
    }
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), panel, pivots, order],
        |state| state[0].lt(steps),
        |state| {
            let (step, panel, pivots, order) = (state[0], state[1], state[2], state[3]);
            let zero = b.scalar(0, DType::I32);
            let row = b.iota(DType::I32, &[1, height, 1], 1);
            let column = b.iota(DType::I32, &[1, 1, width], 2);
            let own = panel.dynamic_slice(&[zero, step, zero], &[batch, 1, width]);
            let candidates = panel.dynamic_slice(&[zero, zero, step], &[batch, height, 1]);
            let chosen = if pivot { largest_below(candidates, step) } else { step.broadcast_to(&[batch, 1, 1]) };
            let other = row.eq(chosen).select(panel, 0).reduce_sum(&[1]).unsqueeze(1);
            let panel = row.eq(step).select(other, row.eq(chosen).select(own, panel));

            let divisor = other.dynamic_slice(&[zero, zero, step], &[batch, 1, 1]);
            let below = panel.dynamic_slice(&[zero, zero, step], &[batch, height, 1]);
            // Below a zero pivot all elements are zero.
            let factor = row.gt(step).select(divisor.eq(0).select(below, below / divisor), 0);
            let rest = panel - factor * column.gt(step).select(other, 0);
            let panel = (row.gt(step) & column.eq(step)).select(factor, rest);

            let chosen = chosen.reshape(&[batch, 1]);
            let number = b.iota(DType::I32, &[1, steps], 1);
            let pivots = number.eq(step).select(chosen, pivots);
            let number = b.iota(DType::I32, &[1, height], 1);
            let own = order.dynamic_slice(&[zero, step], &[batch, 1]);
            let other = number.eq(chosen).select(order, 0).reduce_sum(&[1]).unsqueeze(1);
            let order = number.eq(step).select(other, number.eq(chosen).select(own, order));
            vec![step + 1, panel, pivots, order]
        },
    );
    (state[1], state[2], state[3])
}

/// The row, from `step` on, of the element with the largest magnitude `|re| + |im|`; batch × 1 × 1.
fn largest_below<'b>(candidates: Value<'b>, step: Value<'b>) -> Value<'b> {
    let row = candidates.builder().iota(DType::I32, &candidates.dims(), 1);
    let size = candidates.real().abs();
    let size = if candidates.dtype().is_complex() { size + candidates.imag().abs() } else { size };
    let size = row.ge(step).select(size, -1.0);
    let largest = size.reduce_max(&[1]).unsqueeze(1);
    let first = size.eq(largest).select(row, i64::from(i32::MAX)).reduce_min(&[1]).unsqueeze(1);
    // If all elements of the column are NaN, any row will do.
    first.eq(i64::from(i32::MAX)).select(step, first)
}

/// Whether PyTorch factors the transpose of an argument. It does for row-major real matrices, and its gradients
/// expect these factors.
fn factors_transpose(cx: &Cx<'_>, name: &str) -> bool {
    match cx.arg(name) {
        Arg::Tensor(spec) => {
            let dense = contiguous_strides(&spec.sizes);
            let row_major = (0..spec.sizes.len()).all(|i| spec.sizes[i] == 1 || spec.strides[i] == dense[i]);
            !spec.dtype.is_complex() && (row_major || spec.sizes.contains(&0))
        }
        Arg::Value(value) => !value.dtype().is_complex(),
        _ => false,
    }
}
