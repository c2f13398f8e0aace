//! Reduces matrices to tridiagonal, Hessenberg and bidiagonal form by Householder reflections from both sides, in
//! blocks: within a block, a reflection only reads the matrix, and a product of matrices applies the whole block
//! (Dongarra, Hammarling and Sorensen, "Block reduction of matrices to condensed forms for eigenvalue computations",
//! 1989).

use stablehlo::{DType, Value};

use crate::common::matrices::{adjoint, times, transposed};
use crate::common::reflectors::{Reflection, column, position, product};

/// The largest number of steps in a block.
const BLOCK: i64 = 32;

/// `A = basis · T · basisᴴ` for Hermitian A, batch × size × size. T is real, symmetric and tridiagonal.
pub(crate) struct Tridiagonal<'b> {
    pub basis: Value<'b>,
    pub diagonal: Value<'b>,
    pub beside: Value<'b>,
}

impl<'b> Tridiagonal<'b> {
    pub(crate) fn of(a: Value<'b>) -> Tridiagonal<'b> {
        // The block is A − V Wᴴ − W Vᴴ.
        let real = a.dtype().real();
        let plan = Plan { kept: 1, numbers: &[a.dtype(), real, real], left: [0, 1], right: [1, 0], is_hermitian: true };
        let found = reduced(a, &plan, |step, [a, _], panels| {
            let (v, w) = (panels[0], panels[1]);
            let column = column(a, step.index) - apply(v, step.row(w)) - apply(w, step.row(v));
            let own = step.at(column);
            let reflection = Reflection::of(column, step.index + 1);
            let vector = reflection.vector;
            let x = apply(a, vector) - apply(v, apply_adjoint(w, vector)) - apply(w, apply_adjoint(v, vector));
            let x = step.after(x) * reflection.factor;
            let inner = (x.conjugate() * vector).reduce_sum(&[1]).unsqueeze(1);
            Found {
                columns: vec![vector, x - vector * (reflection.factor * inner * 0.5)],
                numbers: vec![reflection.factor, own.real(), reflection.result],
            }
        });
        let basis = behind_first(found.columns[0], found.numbers[0]);
        Tridiagonal { basis, diagonal: found.numbers[1], beside: without_last(found.numbers[2]) }
    }
}

/// `A = basis · H · basisᴴ` for A, batch × size × size. H is zero below the diagonal beside the main one.
pub(crate) struct Hessenberg<'b> {
    pub matrix: Value<'b>,
    vectors: Value<'b>,
    factors: Value<'b>,
}

impl<'b> Hessenberg<'b> {
    pub(crate) fn of(a: Value<'b>) -> Hessenberg<'b> {
        // The block is A − V Wᴴ − Y Vᴴ. The second panel has the columns of H.
        let plan = Plan { kept: 2, numbers: &[a.dtype()], left: [0, 3], right: [2, 0], is_hermitian: false };
        let found = reduced(a, &plan, |step, [a, turned], panels| {
            let (v, w, y) = (panels[0], panels[2], panels[3]);
            let column = column(a, step.index) - apply(v, step.row(w)) - apply(y, step.row(v));
            let Reflection { vector, factor, result } = Reflection::of(column, step.index + 1);
            let result = (position(column) - 1).eq(step.index).select(result.convert(column.dtype()), 0);
            let column = position(column).le(step.index).select(column, result);
            let inner = apply_adjoint(v, vector);
            let down = apply(a, vector) - apply(v, apply_adjoint(w, vector)) - apply(y, inner);
            let across = apply(turned, vector) - apply(w, inner) - apply(v, apply_adjoint(y, vector));
            let (down, across) = (down * factor, across * factor);
            let own = (vector * down.conjugate()).reduce_sum(&[1]).unsqueeze(1) * factor;
            Found { columns: vec![vector, column, across - vector * own, down], numbers: vec![factor] }
        });
        Hessenberg { matrix: found.columns[1], vectors: found.columns[0], factors: found.numbers[0] }
    }

    /// Batch × size × size.
    pub(crate) fn basis(&self) -> Value<'b> {
        behind_first(self.vectors, self.factors)
    }
}

/// `A = left · B · rightᴴ` for A, batch × size × size. B is real and upper bidiagonal.
pub(crate) struct Bidiagonal<'b> {
    pub left: Value<'b>,
    pub right: Value<'b>,
    pub diagonal: Value<'b>,
    pub above: Value<'b>,
}

impl<'b> Bidiagonal<'b> {
    pub(crate) fn of(a: Value<'b>) -> Bidiagonal<'b> {
        // The block is A − V Yᴴ − X Uᴴ.
        let (dtype, real) = (a.dtype(), a.dtype().real());
        let numbers = &[dtype, dtype, real, real];
        let plan = Plan { kept: 2, numbers, left: [0, 3], right: [2, 1], is_hermitian: false };
        let found = reduced(a, &plan, |step, [a, turned], panels| {
            let (v, u, y, x) = (panels[0], panels[1], panels[2], panels[3]);
            let column = column(a, step.index) - apply(v, step.row(y)) - apply(x, step.row(u));
            let left = Reflection::of(column, step.index);
            let vector = left.vector;
            let across =
                apply(turned, vector) - apply(y, apply_adjoint(v, vector)) - apply(u, apply_adjoint(x, vector));
            let across = step.after(across) * left.factor;
            let (v, y) = (step.with_column(v, vector), step.with_column(y, across));
            let row = row(a, step.index).conjugate() - apply(y, step.row(v)) - apply(u, step.row(x));
            let right = Reflection::of(row, step.index + 1);
            let vector = right.vector;
            let down = apply(a, vector) - apply(v, apply_adjoint(y, vector)) - apply(x, apply_adjoint(u, vector));
            let down = step.after(down) * right.factor;
            Found {
                columns: vec![left.vector, right.vector, across, down],
                numbers: vec![left.factor, right.factor, left.result, right.result],
            }
        });
        let left = product(found.columns[0], found.numbers[0]);
        let right = behind_first(found.columns[1], found.numbers[1]);
        Bidiagonal { left, right, diagonal: found.numbers[2], above: without_last(found.numbers[3]) }
    }
}

fn without_last(x: Value<'_>) -> Value<'_> {
    x.slice_axis(1, 0, x.dim(1) - 1)
}

/// The product of reflections that leave the first element as it is.
fn behind_first<'b>(vectors: Value<'b>, factors: Value<'b>) -> Value<'b> {
    let size = vectors.dim(1);
    let inner = vectors.slice_axis(1, 1, size).slice_axis(2, 0, size - 1);
    let inner = product(inner, factors.slice_axis(1, 0, size - 1));
    let first = vectors.builder().iota(DType::I32, &[1, 1, size], 2).eq(0).convert(vectors.dtype());
    let first = first.broadcast_to(&[vectors.dim(0), 1, size]);
    vectors.builder().concatenate(&[first, inner.pad_axis(2, 0, 1, 0)], 1)
}

/// The plan of a reduction. One block changes the matrix from A to A − L Rᴴ. The two panels `left` make L, side by side. The
/// two panels `right` make R.
struct Plan<'p> {
    /// The number of panels, the first ones, whose columns are kept for all steps.
    kept: usize,
    /// The types of the numbers of a step.
    numbers: &'p [DType],
    left: [usize; 2],
    right: [usize; 2],
    is_hermitian: bool,
}

/// The results of a step: its columns of the panels (batch × size), and its numbers (batch × 1).
struct Found<'b> {
    columns: Vec<Value<'b>>,
    numbers: Vec<Value<'b>>,
}

/// The results of all steps: the columns of the kept panels (batch × size × size), and the numbers (batch × size).
struct Reduced<'b> {
    columns: Vec<Value<'b>>,
    numbers: Vec<Value<'b>>,
}

/// Takes a `step` for each column. It has the matrix at the beginning of its block, its adjoint, and panels, batch × size × block,
/// whose columns are those that the steps of the block found.
fn reduced<'b>(
    a: Value<'b>,
    plan: &Plan<'_>,
    step: impl Fn(&Step<'b>, [Value<'b>; 2], &[Value<'b>]) -> Found<'b>,
) -> Reduced<'b> {
    let b = a.builder();
    let (batch, size, dtype) = (a.dim(0), a.dim(1), a.dtype());
    let panels = plan.left.into_iter().chain(plan.right).max().unwrap_or(0) + 1;
    let block = BLOCK.min(size);
    // Steps behind the last column reflect nothing.
    let steps = (size + block - 1) / block * block;
    let columns = vec![b.splat(0, dtype, &[batch, size, steps]); plan.kept];
    let numbers = plan.numbers.iter().map(|&dtype| b.splat(0, dtype, &[batch, steps])).collect();
    let start = [vec![b.scalar(0, DType::I32), a], numbers, columns].concat();
    let records = plan.numbers.len();
    let state = b.while_loop(
        &start,
        |state| state[0].lt(steps),
        |state| {
            let b = state[0].builder();
            let empty = vec![b.splat(0, dtype, &[batch, size, block]); panels];
            // A Hermitian matrix is its own adjoint. The adjoint is made once for each block: products by a transposed
            // matrix are slower.
            let turned = if plan.is_hermitian { state[1] } else { adjoint(state[1]) };
            let begin = vec![b.scalar(0, DType::I32), state[0], state[1], turned];
            let inner = [begin, state[2..2 + records].to_vec(), empty].concat();
            let inner = b.while_loop(
                &inner,
                |inner| inner[0].lt(block),
                |inner| {
                    let (records, panels) = inner[4..].split_at(records);
                    let at = Step { index: inner[1] + inner[0], place: inner[0] };
                    let found = step(&at, [inner[2], inner[3]], panels);
                    let records = records.iter().zip(found.numbers).map(|(all, own)| at.recorded(*all, own));
                    let panels = panels.iter().zip(found.columns).map(|(panel, own)| at.with_column(*panel, own));
                    [inner[0] + 1, inner[1], inner[2], inner[3]].into_iter().chain(records).chain(panels).collect()
                },
            );
            let panels = &inner[4 + records..];
            let side = |numbers: [usize; 2]| b.concatenate(&numbers.map(|i| panels[i]), 2);
            let matrix = inner[2] - times(side(plan.left), adjoint(side(plan.right)));
            let zero = b.scalar(0, DType::I32);
            let columns = state[2 + records..].iter().zip(panels);
            let columns = columns.map(|(all, own)| all.dynamic_update_slice(*own, &[zero, zero, state[0]]));
            [state[0] + block, matrix].into_iter().chain(inner[4..4 + records].iter().copied()).chain(columns).collect()
        },
    );
    let of_steps = |x: &Value<'b>| x.slice_axis(x.rank() - 1, 0, size);
    Reduced {
        columns: state[2 + records..].iter().map(of_steps).collect(),
        numbers: state[2..2 + records].iter().map(of_steps).collect(),
    }
}

/// The place of a step: the number of its column in the matrix, and in the panels of its block (0-d).
struct Step<'b> {
    index: Value<'b>,
    place: Value<'b>,
}

impl<'b> Step<'b> {
    /// The conjugate of this step's row of a panel.
    fn row(&self, panel: Value<'b>) -> Value<'b> {
        row(panel, self.index).conjugate()
    }

    /// This step's element, batch × 1.
    fn at(&self, x: Value<'b>) -> Value<'b> {
        position(x).eq(self.index).select(x, 0).reduce_sum(&[1]).unsqueeze(1)
    }

    /// Only the elements behind this step's.
    fn after(&self, x: Value<'b>) -> Value<'b> {
        position(x).gt(self.index).select(x, 0)
    }

    fn with_column(&self, panel: Value<'b>, column: Value<'b>) -> Value<'b> {
        let zero = self.place.splat_like(0);
        panel.dynamic_update_slice(column.unsqueeze(2), &[zero, zero, self.place])
    }

    fn recorded(&self, all: Value<'b>, own: Value<'b>) -> Value<'b> {
        all.dynamic_update_slice(own, &[self.index.splat_like(0), self.index])
    }
}

fn row<'b>(matrix: Value<'b>, index: Value<'b>) -> Value<'b> {
    let zero = index.splat_like(0);
    matrix.dynamic_slice(&[zero, index, zero], &[matrix.dim(0), 1, matrix.dim(2)]).squeeze(1)
}

fn apply<'b>(matrix: Value<'b>, vector: Value<'b>) -> Value<'b> {
    times(matrix, vector.unsqueeze(2)).squeeze(2)
}

/// The product with the adjoint. The vector is conjugated, not the matrix, which is larger.
fn apply_adjoint<'b>(matrix: Value<'b>, vector: Value<'b>) -> Value<'b> {
    apply(transposed(matrix), vector.conjugate()).conjugate()
}
