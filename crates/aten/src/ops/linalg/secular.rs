//! The eigenvalues of a diagonal matrix plus a matrix of rank one, D + ρ z zᵀ. They are the roots λ of the secular
//! equation 1/ρ + Σ zᵢ² / (Dᵢ − λ) = 0 (Golub, "Some modified matrix eigenvalue problems", 1973). All roots of all
//! matrices are found at once.

use stablehlo::{DType, Value};

use crate::common::matrices::times;

/// A root is found within ten to fifteen steps. Clustered poles take up to fifty.
const MOST_STEPS: i64 = 100;

/// The meaning of the numbers `at` of a [`RankOne`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// D itself. The roots are returned as they are.
    Plain,
    /// The square roots of D. The square roots of the roots are returned.
    Squared,
}

/// Several matrices D + ρ z zᵀ on the diagonal of a larger one. All values are batch × size, but for `norm`.
pub(crate) struct RankOne<'b> {
    pub form: Form,
    pub at: Value<'b>,
    /// Zero where it is too small to matter: then Dᵢ is an eigenvalue, and the i-th unit vector belongs to it.
    pub z: Value<'b>,
    /// One number for each matrix, repeated for each of its elements.
    pub rho: Value<'b>,
    /// The size of the numbers that rounding errors are relative to, batch × 1.
    pub norm: Value<'b>,
    /// The number of the matrix that an element belongs to, int32, 1 × size, ascending.
    pub block: Value<'b>,
}

/// The eigenvalues, ascending in each matrix, and what their vectors are made of. Rows are in the order of `at`, columns
/// in the order of the eigenvalues.
pub(crate) struct Roots<'b> {
    /// Batch × size.
    pub values: Value<'b>,
    /// `ẑᵢ / (Dᵢ − λⱼ)`, batch × size × size, where the z of both are not zero, else zero. ẑ is close to z, and the λ
    /// are its exact roots. Its columns are orthogonal for that reason, however close two roots are (Gu and Eisenstat,
    /// "A stable and efficient algorithm for the rank-one modification of the symmetric eigenproblem", 1994).
    pub quotients: Value<'b>,
    /// Whether the column belongs to an eigenvalue that is a root, batch × 1 × size.
    pub is_root: Value<'b>,
    /// The unit vectors of the other columns, batch × size × size.
    pub units: Value<'b>,
    /// `at` of the rows, with the small steps that keep them apart, batch × size × 1.
    pub at: Value<'b>,
}

/// Places on the line of poles. Two poles that are equal are kept apart by the step, which is far below the rounding
/// errors of `at`: differences of poles are computed from both, so that they are exact and never zero.
#[derive(Clone, Copy)]
struct Poles<'b> {
    at: Value<'b>,
    rank: Value<'b>,
}

impl<'b> Poles<'b> {
    fn minus(self, other: Poles<'b>, form: Form, step: Value<'b>) -> Value<'b> {
        let apart = (self.at - other.at) + (self.rank - other.rank) * step;
        match form {
            Form::Plain => apart,
            Form::Squared => apart * ((self.at + other.at) + (self.rank + other.rank) * step),
        }
    }

    fn unsqueeze(self, axis: usize) -> Poles<'b> {
        Poles { at: self.at.unsqueeze(axis), rank: self.rank.unsqueeze(axis) }
    }

    fn or(self, condition: Value<'b>, other: Poles<'b>) -> Poles<'b> {
        Poles { at: condition.select(other.at, self.at), rank: condition.select(other.rank, self.rank) }
    }
}

/// A root as the distance `offset` from the pole that is nearest to it. Only so is the distance precise.
struct Root<'b> {
    origin: Poles<'b>,
    offset: Value<'b>,
}

impl<'b> RankOne<'b> {
    pub(crate) fn roots(&self) -> Roots<'b> {
        let (b, at, dtype) = (self.at.builder(), self.at, self.at.dtype());
        let size = at.dim(1);
        let step = self.norm * (dtype.epsilon() / size as f64);
        let wide_step = step.unsqueeze(2);
        let position = b.iota(DType::I32, &at.dims(), 1);
        let square = self.z.square();
        let block = self.block.broadcast_to(&at.dims());
        let in_order = |left: &[Value<'b>], right: &[Value<'b>]| {
            left[0].lt(right[0]) | (left[0].eq(right[0]) & left[1].lt(right[1]))
        };
        let sorted = &b.sort(&[block, at, position, square], 1, true, in_order)[1..];
        let rank = b.sort(&[sorted[1], position], 1, true, |left, right| left[0].lt(right[0]))[1];
        // Steps are counted from the first pole, which stays where it is.
        let is_same = self.is_same();
        let is_pole = is_same & square.gt(0.0).unsqueeze(2);
        let first = is_pole.select(rank.unsqueeze(2), size).reduce_min(&[1]);
        let poles = Poles { at, rank: (rank - first).convert(dtype) };
        let rows = poles.unsqueeze(2);
        let own = Poles { at: sorted[0], rank: (position - first).convert(dtype) };
        let root = self.search(poles, own, sorted[2], wide_step);

        let is_root = sorted[2].gt(0.0);
        let small = root.origin.rank * step;
        let values = match self.form {
            Form::Plain => root.origin.at + (small + root.offset),
            Form::Squared => ((root.origin.at + small).square() + root.offset).max(0.0).sqrt(),
        };
        let values = is_root.select(values, own.at);
        let columns = [block, values, own.at, own.rank, root.origin.at, root.origin.rank, root.offset, sorted[2]];
        let columns = &b.sort(&columns, 1, true, in_order)[1..];
        let values = columns[0];
        let columns: Vec<Value<'b>> = columns.iter().map(|column| column.unsqueeze(1)).collect();
        let own = Poles { at: columns[1], rank: columns[2] };
        let origin = Poles { at: columns[3], rank: columns[4] };
        let is_root = columns[6].gt(0.0);

        let distance = rows.minus(origin, self.form, wide_step) - columns[5];
        let is_own = is_same & rows.rank.eq(own.rank);
        let between = is_own.select(distance.splat_like(1), own.minus(rows, self.form, wide_step));
        let factors = (is_same & is_root).select(-distance / between, 1.0);
        let z = (factors.reduce_prod(&[2]) / self.rho).max(0.0).sqrt().copy_sign(self.z).unsqueeze(2);
        let both = is_pole & is_root;
        Roots {
            values,
            quotients: both.select(z / distance, 0.0),
            is_root,
            units: (is_own & !is_root).convert(dtype),
            at: rows.at + rows.rank * wide_step,
        }
    }

    /// Whether row and column belong to one matrix, 1 × size × size.
    fn is_same(&self) -> Value<'b> {
        self.block.unsqueeze(2).eq(self.block.unsqueeze(1))
    }

    /// The root behind each pole of `own`, whose z² are `square`. Newton's method, kept inside an interval that shrinks.
    ///
    /// Here the roots are rows and the poles are columns: sums along rows are the faster ones.
    fn search(&self, poles: Poles<'b>, own: Poles<'b>, square: Value<'b>, step: Value<'b>) -> Root<'b> {
        let (b, dtype) = (square.builder(), square.dtype());
        let size = square.dim(1);
        let (poles, squares) = (poles.unsqueeze(1), self.z.square().unsqueeze(1));
        let (rows, base) = (own.unsqueeze(2), self.rho.recip());
        // The next pole, where the interval of the root ends. The last interval ends where the sum of z² leads.
        let matters = self.is_same() & squares.gt(0.0);
        let is_later = matters & poles.rank.gt(rows.rank);
        let smallest = |x: Value<'b>, none: f64| is_later.select(x, none).reduce_min(&[2]);
        let next = Poles { at: smallest(poles.at, f64::INFINITY), rank: smallest(poles.rank, size as f64) };
        let has_next = next.rank.lt(size as f64);
        let is_next = matters & poles.rank.eq(next.rank.unsqueeze(2));
        let next_square = is_next.select(squares, 0.0).reduce_sum(&[2]);
        let next = own.or(has_next, next);
        let all = matters.select(squares, 0.0).reduce_sum(&[2]) * self.rho * (1.0 + 8.0 * dtype.epsilon());
        let to_next = next.unsqueeze(2).minus(rows, self.form, step).squeeze(2);
        let width = has_next.select(to_next, all);
        // The sign in the middle of the interval says which pole is nearer. Distances are measured from that one.
        let middle = width * 0.5;
        let distance = poles.minus(rows, self.form, step) - middle.unsqueeze(2);
        let sum = matters.select(squares / distance, 0.0).reduce_sum(&[2]) + base;
        let is_right = has_next & sum.lt(0.0);
        let origin = own.or(is_right, next);
        let low = is_right.select(-middle, 0.0);
        let high = is_right.select(middle.splat_like(0), has_next.select(middle, width));
        let start = is_right.select(low, high);
        let near = origin.unsqueeze(2);
        let is_other = matters & poles.rank.ne(near.rank);
        let distance = is_other.select(poles.minus(near, self.form, step), f64::INFINITY);
        let own_square = is_right.select(next_square, square);

        let squares = self.z.square().unsqueeze(2);
        let state = [b.scalar(0, DType::I32), square.le(0.0), start, low, high, own_square, is_right, base, squares];
        let state = b.while_loop(
            &[state.as_slice(), &[distance]].concat(),
            |state| state[0].lt(MOST_STEPS) & (!state[1]).reduce_any(&[0, 1]),
            |state| {
                let mut next = narrowed(state);
                next.extend_from_slice(&state[5..]);
                next
            },
        );
        Root { origin, offset: state[2] }
    }
}

/// One step of the search: the first five values of its state. The equation times the offset, h(x) = x · (1/ρ + Σ zᵢ² /
/// (δᵢ − x)) − z², is smooth at the pole that x is measured from.
fn narrowed<'b>(state: &[Value<'b>]) -> Vec<Value<'b>> {
    let (done, x, low, high) = (state[1], state[2], state[3], state[4]);
    let (own_square, is_right, base, squares, distance) = (state[5], state[6], state[7], state[8], state[9]);
    let epsilon = x.dtype().epsilon();
    let inverse = (distance - x.unsqueeze(2)).recip().barrier();
    let sum = |terms: Value<'b>| times(terms, squares).squeeze(2);
    let (rest, slope) = (sum(inverse) + base, sum(inverse.square()));
    let size = x.abs() * (sum(inverse.abs()) + base) + own_square;
    let h = x * rest - own_square;
    let is_low = is_right.select(h.gt(0.0), h.lt(0.0));
    let (lower, higher) = (is_low.select(x, low), is_low.select(high, x));
    let newton = x - h / (rest + x * slope);
    // Outside the interval: the geometric mean of its ends, since the root may be many orders of magnitude smaller.
    let (least, most) = (is_right.select(-higher, lower), is_right.select(-lower, higher));
    let mean = (least.max(most * 1e-3) * most).sqrt();
    let mean = is_right.select(-mean, mean);
    let next = (newton.gt(lower) & newton.lt(higher)).select(newton, mean);
    let is_exact = h.abs().le(size * epsilon) | (next - x).abs().le(next.abs() * epsilon);
    let done = done | is_exact;
    vec![state[0] + 1, done, done.select(x, next), lower, higher]
}
