//! Distances between the rows of matrices.

use stablehlo::{DType, Value};

use crate::common::chosen::Chosen;
use crate::common::matrices::{same_batch, times, transposed};
use crate::common::reductions::{Order, vector_norm};
use crate::cx::Cx;
use crate::error::Result;
use crate::places::{Combine, Places, take_flat};
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["_cdist_forward"], cdist)
        .one_dtype(&["x1", "x2"])
        .requires(&["p"], is_order)
        .baked_if(&["p"], Order::has_own_form)
        .bounded(),
    one(&["_cdist_backward"], |cx| {
        let (x, y) = (cx.tensor("x1")?, cx.tensor("x2")?);
        let (grad, distance) = (gradient(cx)?, cx.tensor("cdist")?);
        // PyTorch sums over broadcast batches itself, but not where there is no distance.
        if distance.numel() == 0 || x.numel() == 0 {
            return Ok(x.splat_like(0));
        }
        // Batches are broadcast.
        let [distance, grad] = [distance, grad].map(|values| values.unsqueeze(values.rank()));
        let slopes = slope(Order::of(cx, "p")?, differences(x, y)?, distance) * grad;
        Ok(slopes.reduce_sum(&[slopes.rank() - 2]))
    })
    .baked_if(&["p"], Order::has_own_form)
    .bounded(),
    one(&["_pdist_forward"], |cx| {
        let x = cx.tensor("self")?;
        let all = distance(Order::of(cx, "p")?, differences(x, x)?);
        Ok(take_flat(all.flatten(), pairs(x)))
    })
    .requires(&["p"], is_order)
    .baked_if(&["p"], Order::has_own_form),
    one(&["_pdist_backward"], |cx| {
        let (x, grad, distance) = (cx.tensor("self")?, gradient(cx)?, cx.tensor("pdist")?);
        let whole = |values| symmetric(x, values).unsqueeze(2);
        let slopes = slope(Order::of(cx, "p")?, differences(x, x)?, whole(distance)) * whole(grad);
        Ok(slopes.reduce_sum(&[1]))
    })
    .baked_if(&["p"], Order::has_own_form),
];

/// The gradient of the distances. Before 2.14, PyTorch calls the argument `grad`.
fn gradient<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    cx.tensor_or_none("grad_output").map_or_else(|| cx.tensor("grad"), Ok)
}

/// Whether PyTorch takes the order of a distance.
fn is_order(numbers: &[f64], _: DType) -> bool {
    numbers[0] >= 0.0
}

/// The norm over the last dimension.
fn distance<'b>(order: Order<'b>, differences: Value<'b>) -> Value<'b> {
    let norm = vector_norm(differences, order, &[differences.rank() - 1]);
    // The distance of empty vectors is 0.
    if matches!(order, Order::Infinity) { norm.max(0) } else { norm }
}

/// The derivative of a distance by each difference; 0 where it does not exist.
fn slope<'b>(order: Order<'b>, differences: Value<'b>, distance: Value<'b>) -> Value<'b> {
    let (sign, size) = (differences.sign(), differences.abs());
    let steep = |value: Value<'b>| distance.eq(0).select(value.splat_like(0), value);
    match order {
        Order::Zero => differences.splat_like(0),
        Order::One => sign,
        Order::Two => steep(differences / distance),
        Order::Infinity | Order::NegativeInfinity => size.eq(distance).select(sign, 0),
        Order::Other(p) => {
            let power = |x: Value<'b>| x.pow((p - 1.0).convert(x.dtype()));
            let slope = steep(sign * power(size) / power(distance));
            (size.eq(0) & p.lt(1.0)).select(slope.splat_like(0), slope)
        }
    }
}

/// The number of rows from which PyTorch computes Euclidean distances by a matrix product.
const MANY_ROWS: i64 = 25;

fn cdist<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (x, y) = (cx.tensor("x1")?, cx.tensor("x2")?);
    let order = Order::of(cx, "p")?;
    let rows = |x: Value<'_>| x.dims().iter().rev().nth(1).copied().unwrap_or(0);
    let by_product = match cx.int_or_none("compute_mode").unwrap_or(0) {
        0 => rows(x) > MANY_ROWS || rows(y) > MANY_ROWS,
        mode => mode == 1,
    };
    if !by_product || !matches!(order, Order::Two) {
        return Ok(distance(order, differences(x, y)?));
    }
    let (x, y) = same_batch(x, y)?;
    let squares = |x: Value<'b>| x.square().reduce_sum(&[x.rank() - 1]);
    let (rows, columns) = (squares(x).unsqueeze(x.rank() - 1), squares(y).unsqueeze(y.rank() - 2));
    Ok((rows + columns - times(x, transposed(y)) * 2).max(0).sqrt())
}

/// The differences of all pairs of rows: [..., rows of x, rows of y, columns].
fn differences<'b>(x: Value<'b>, y: Value<'b>) -> Result<Value<'b>> {
    let (x, y) = same_batch(x, y)?;
    Ok(x.unsqueeze(x.rank() - 1) - y.unsqueeze(y.rank() - 2))
}

/// The positions of pairs (i, j) with i < j in the flat matrix of all pairs of rows of `x`.
fn pairs(x: Value<'_>) -> Value<'_> {
    let (b, rows) = (x.builder(), x.dim(0));
    let number = |axis: usize| b.iota(DType::I32, &[rows, rows], axis);
    Chosen::new(number(0).lt(number(1)).flatten()).positions().slice_axis(0, 0, rows * (rows - 1) / 2)
}

/// The symmetric matrix of all pairs of rows of `x`, with `values` at the positions of [`pairs`].
fn symmetric<'b>(x: Value<'b>, values: Value<'b>) -> Value<'b> {
    let rows = x.dim(0);
    let zeros = x.builder().splat(0, values.dtype(), &[rows * rows]);
    let upper = Places::flat(rows * rows, pairs(x)).unique().write(zeros, values, Combine::Replace);
    let upper = upper.reshape(&[rows, rows]);
    upper + upper.swap_axes(0, 1)
}
