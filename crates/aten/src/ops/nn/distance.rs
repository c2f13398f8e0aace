//! Distances between the rows of matrices.

use stablehlo::{DType, Value};

use crate::common::chosen::Chosen;
use crate::common::matrices::{same_batch, times, transposed};
use crate::cx::Cx;
use crate::error::Result;
use crate::places::{Combine, Places, take_flat};
use crate::row::{Row, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["_cdist_forward"], cdist).baked(&["p"]),
    one(&["_cdist_backward"], |cx| {
        let (x, y) = (cx.tensor("x1")?, cx.tensor("x2")?);
        let (grad, distance) = (cx.tensor("grad_output")?, cx.tensor("cdist")?);
        let norm = Norm::of(cx)?;
        let last = grad.rank();
        let slopes = norm.slope(differences(x, y)?, distance.unsqueeze(last)) * grad.unsqueeze(last);
        Ok(slopes.reduce_sum(&[last - 1]))
    })
    .baked(&["p"]),
    one(&["_pdist_forward"], |cx| {
        let x = cx.tensor("self")?;
        let all = Norm::of(cx)?.distance(differences(x, x)?);
        Ok(take_flat(all.flatten(), pairs(x)))
    })
    .baked(&["p"]),
    one(&["_pdist_backward"], |cx| {
        let (x, grad, distance) = (cx.tensor("self")?, cx.tensor("grad_output")?, cx.tensor("pdist")?);
        let whole = |values| symmetric(x, values).unsqueeze(2);
        let slopes = Norm::of(cx)?.slope(differences(x, x)?, whole(distance)) * whole(grad);
        Ok(slopes.reduce_sum(&[1]))
    })
    .baked(&["p"]),
];

/// The exponent of a distance. Exponent 0 counts non-zero differences; infinity takes the largest.
#[derive(Clone, Copy)]
enum Norm {
    Zero,
    One,
    Two,
    Infinity,
    Other(f64),
}

impl Norm {
    fn of(cx: &Cx<'_>) -> Result<Norm> {
        Ok(match cx.number("p")?.to_f64() {
            0.0 => Norm::Zero,
            1.0 => Norm::One,
            2.0 => Norm::Two,
            f64::INFINITY => Norm::Infinity,
            p => Norm::Other(p),
        })
    }

    /// The norm over the last dimension.
    fn distance<'b>(self, differences: Value<'b>) -> Value<'b> {
        let last = [differences.rank() - 1];
        let size = differences.abs();
        match self {
            Norm::Zero => size.ne(0).convert(size.dtype()).reduce_sum(&last),
            Norm::One => size.reduce_sum(&last),
            Norm::Two => size.square().reduce_sum(&last).sqrt(),
            // The distance of empty vectors is 0.
            Norm::Infinity => size.reduce_max(&last).max(0),
            Norm::Other(p) => {
                size.pow(size.splat_like(p)).reduce_sum(&last).pow(size.builder().scalar(1.0 / p, size.dtype()))
            }
        }
    }

    /// The derivative of a distance by each difference; 0 where it does not exist.
    fn slope<'b>(self, differences: Value<'b>, distance: Value<'b>) -> Value<'b> {
        let (sign, size) = (differences.sign(), differences.abs());
        let steep = |value: Value<'b>| distance.eq(0).select(value.splat_like(0), value);
        match self {
            Norm::Zero => differences.splat_like(0),
            Norm::One => sign,
            Norm::Two => steep(differences / distance),
            Norm::Infinity => size.eq(distance).select(sign, 0),
            Norm::Other(p) => {
                let power = |x: Value<'b>| x.pow(x.splat_like(p - 1.0));
                let slope = steep(sign * power(size) / power(distance));
                if p < 1.0 { size.eq(0).select(slope.splat_like(0), slope) } else { slope }
            }
        }
    }
}

/// The number of rows from which PyTorch computes Euclidean distances by a matrix product.
const MANY_ROWS: i64 = 25;

fn cdist<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (x, y) = (cx.tensor("x1")?, cx.tensor("x2")?);
    let norm = Norm::of(cx)?;
    let rows = |x: Value<'_>| x.dims().iter().rev().nth(1).copied().unwrap_or(0);
    let by_product = match cx.int_or_none("compute_mode").unwrap_or(0) {
        0 => rows(x) > MANY_ROWS || rows(y) > MANY_ROWS,
        mode => mode == 1,
    };
    if !by_product || !matches!(norm, Norm::Two) {
        return Ok(norm.distance(differences(x, y)?));
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
