//! Interpolation filters and their application.

use stablehlo::{DType, DotDims, Precision, Value};

/// The cubic convolution kernel (Keys, "Cubic convolution interpolation for digital image processing",
/// 1981) at a distance of at most 2.
pub(crate) fn cubic<'b>(distance: Value<'b>, a: f64) -> Value<'b> {
    let near = (distance * (a + 2.0) - (a + 3.0)) * distance * distance + 1.0;
    let far = ((distance - 5.0) * distance + 8.0) * distance * a - 4.0 * a;
    distance.le(1.0).select(near, distance.lt(2.0).select(far, 0.0))
}

/// Multiplies each of the last dimensions by a matrix of weights, contracting the matrix's dimension `summed`. Uses full
/// precision, because the matrices are weights of a mean or a filter.
///
/// An infinite or NaN element reaches only the results for which it has a weight. In plain products it would make NaN of a
/// whole row, because `0 · inf` is NaN.
pub(crate) fn along_last_axes<'b>(x: Value<'b>, matrices: &[Value<'b>], summed: usize) -> Value<'b> {
    let is_finite = x.is_finite();
    let sums = products(is_finite.select(x, 0), matrices, summed);
    let code = |number: i64| x.splat_like(number).convert(DType::I8);
    // 0 for a number, 1 and -1 for infinite ones, 2 for NaN.
    let kinds = x.gt(0).select(code(1), x.is_nan().select(code(2), code(-1)));
    let kinds = is_finite.select(code(0), kinds);
    // Padding may hold any number.
    let axes: Vec<usize> = (0..kinds.rank()).collect();
    let kinds = kinds.masked(&axes, kinds.builder().scalar(0, DType::I8)).without_extents();
    let has_others = kinds.ne(0).reduce_any(&axes);
    let weights: Vec<Value<'b>> = matrices.iter().map(|matrix| matrix.without_extents()).collect();
    let state = [&[has_others, sums.without_extents(), kinds], &weights[..]].concat();
    // Runs once if there are such elements, else not at all.
    let state = x.builder().while_loop(
        &state,
        |state| state[0],
        |state| {
            let (sums, kinds, matrices) = (state[1], state[2], &state[3..]);
            let weighted = |which: Value<'b>, weights: fn(Value<'b>) -> Value<'b>| {
                let weights: Vec<Value<'b>> = matrices.iter().map(|&matrix| weights(matrix)).collect();
                products(which.convert(sums.dtype()), &weights, summed)
            };
            let count = |which: Value<'b>| weighted(which, |matrix| matrix.ne(0).convert(matrix.dtype()));
            let is_nan = kinds.eq(2);
            let infinite = count(kinds.ne(0) & !is_nan);
            // The number of positive infinite summands less that of the negative ones.
            let balance = weighted(is_nan.select(kinds.splat_like(0), kinds), |matrix| matrix.sign());
            let (is_up, is_down) = ((infinite + balance).gt(0), (infinite - balance).gt(0));
            let number = |number: f64| sums.splat_like(number);
            let result = is_up.select(number(f64::INFINITY), is_down.select(number(f64::NEG_INFINITY), sums));
            let result = (count(is_nan).gt(0) | (is_up & is_down)).select(number(f64::NAN), result);
            [&[state[0].splat_like(false), result, kinds], matrices].concat()
        },
    );
    state[1].with_extents(sums.extents())
}

/// The same for elements that are all finite.
pub(crate) fn products<'b>(x: Value<'b>, matrices: &[Value<'b>], summed: usize) -> Value<'b> {
    let first = x.rank() - matrices.len();
    matrices.iter().fold(x, |x, &matrix| {
        // Each round contracts the first of the dimensions and appends the result as the last, so the order is
        // restored after all rounds.
        let dims = DotDims { lhs_contract: vec![first], rhs_contract: vec![summed], ..DotDims::default() };
        x.builder().with_precision(Precision::Highest, || x.dot_general(matrix, &dims, x.dtype().opmath()))
    })
}
