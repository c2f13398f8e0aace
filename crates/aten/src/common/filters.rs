//! Interpolation filters and their application.

use stablehlo::{DotDims, Precision, Value};

/// The cubic convolution kernel (Keys, "Cubic convolution interpolation for digital image processing",
/// 1981) at a distance of at most 2.
pub(crate) fn cubic<'b>(distance: Value<'b>, a: f64) -> Value<'b> {
    let near = (distance * (a + 2.0) - (a + 3.0)) * distance * distance + 1.0;
    let far = ((distance - 5.0) * distance + 8.0) * distance * a - 4.0 * a;
    distance.le(1.0).select(near, distance.lt(2.0).select(far, 0.0))
}

/// Multiplies each of the last dimensions by a matrix, contracting the matrix's dimension `summed`. Uses full
/// precision, because the matrices are weights of a mean or a filter.
pub(crate) fn along_last_axes<'b>(x: Value<'b>, matrices: &[Value<'b>], summed: usize) -> Value<'b> {
    let first = x.rank() - matrices.len();
    matrices.iter().fold(x, |x, &matrix| {
        // Each round contracts the first of the dimensions and appends the result as the last, so the order is
        // restored after all rounds.
        let dims = DotDims { lhs_contract: vec![first], rhs_contract: vec![summed], ..DotDims::default() };
        x.builder().with_precision(Precision::Highest, || x.dot_general(matrix, &dims, x.dtype().opmath()))
    })
}
