//! Balances matrices. A permutation moves eigenvalues that the pattern of zeros shows to the ends of the diagonal. Then a
//! diagonal matrix of powers of two makes the row and the column of the same number about equally long (Osborne, "On
//! pre-conditioning of matrices", 1960; Parlett and Reinsch, "Balancing a matrix", 1969). Eigenvalues are then as precise
//! as the balanced matrix allows.

use stablehlo::{DType, Value};

use crate::common::matrices::{each_part, in_units, position_along, rows_at, transposed};
use crate::common::sorting::sorted;

/// Most matrices need two or three steps.
const MOST_STEPS: i64 = 100;

/// `A = P D · matrix · D⁻¹ Pᵀ`. P is a permutation, D is diagonal.
pub(crate) struct Balanced<'b> {
    /// Batch × size × size.
    pub matrix: Value<'b>,
    /// The rows of A that are the rows of Pᵀ A, int32, batch × size.
    order: Value<'b>,
    /// The diagonal of D, real, batch × size.
    scale: Value<'b>,
}

impl<'b> Balanced<'b> {
    /// For batch × size × size.
    pub(crate) fn of(a: Value<'b>) -> Balanced<'b> {
        let order = order(a);
        let permuted = transposed(rows_at(transposed(rows_at(a, order)), order));
        let (matrix, scale) = scaled(permuted);
        Balanced { matrix, order, scale }
    }

    /// P D `x`, for batch × size × columns.
    pub(crate) fn undone(&self, x: Value<'b>) -> Value<'b> {
        let (_, inverse) = sorted(self.order, 1, false);
        rows_at(each_part(x, |part| part * self.scale.unsqueeze(2)), inverse.convert(DType::I32))
    }
}

/// The order in which rows and columns are as triangular as their zeros show, int32, batch × size. A row with zeros beside
/// the diagonal becomes the last one, a column the first. The others are looked at again without them.
fn order(a: Value<'_>) -> Value<'_> {
    let b = a.builder();
    let size = a.dim(2);
    let is_zero = a.eq(0) | position_along(a, 0).eq(position_along(a, 1));
    let place = b.splat(0, DType::I32, &[a.dim(0), size]);
    // Rows that have no place yet have the number zero. Places far from zero are taken first.
    let state = b.while_loop(
        &[b.scalar(2 * size, DType::I32), b.splat(true, DType::Bool, &[]), place, is_zero],
        |state| state[1],
        |state| {
            let (end, place, is_zero) = (state[0], state[2], state[3]);
            let is_left = place.eq(0);
            let row = is_left & (is_zero | !is_left.unsqueeze(1)).reduce_all(&[2]);
            let column = is_left & (is_zero | !is_left.unsqueeze(2)).reduce_all(&[1]);
            let next =
                row.select(end.broadcast_to(&place.dims()), column.select(-end.broadcast_to(&place.dims()), place));
            vec![end - 1, (row | column).reduce_any(&[0, 1]), next, is_zero]
        },
    );
    let (_, order) = sorted(state[2], 1, false);
    order.convert(DType::I32)
}

/// The lengths along `axis` of batch × size × size, batch × size. Sums of magnitudes would serve as well, but lead to
/// larger scales than the eigenvectors bear (James, Langou and Lowery, "On matrix balancing and eigenvector computation",
/// 2014).
fn length(size: Value<'_>, axis: usize) -> Value<'_> {
    let (size, unit) = in_units(size, &[axis]);
    size.square().reduce_sum(&[axis]).sqrt() * unit.squeeze(axis)
}

/// `D⁻¹ A D`, and the diagonal of D, real, batch × size, for batch × size × size.
fn scaled(a: Value<'_>) -> (Value<'_>, Value<'_>) {
    let b = a.builder();
    let real = a.dtype().real();
    let one = b.splat(1, real, &[a.dim(0), a.dim(2)]);
    let more = b.splat(true, DType::Bool, &[]);
    let state = b.while_loop(
        &[b.scalar(0, DType::I32), more, one, a],
        |state| state[0].lt(MOST_STEPS) & state[1],
        |state| {
            let (scale, matrix) = (state[2], state[3]);
            let is_beside = position_along(matrix, 0).ne(position_along(matrix, 1));
            let size = is_beside.select(matrix.abs(), 0);
            let (row, column) = (length(size, 2), length(size, 1));
            // All rows change at once, so each takes half of the step that it would need alone.
            let factor = (row.sqrt() / column.sqrt()).sqrt().nearest_power_of_two();
            let factor = (row.gt(0) & column.gt(0)).select(factor, 1);
            let (wide, high) = (factor.unsqueeze(1), factor.unsqueeze(2));
            let next = each_part(matrix, |part| part * wide / high);
            vec![state[0] + 1, factor.ne(1).reduce_any(&[0, 1]), scale * factor, next]
        },
    );
    (state[3], state[2])
}
