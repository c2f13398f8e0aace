//! Normalization within a sample: layer norm, group norm and root mean square norm. Normalization of weights.
//!
//! Let x = input, g = gradient of the output times weight, mean(·) = the mean over the normalized dimensions:
//!
//! ```text
//! layer norm:  x̂ = (x - mean(x)) · rstd;  g_input = (g - mean(g) - x̂ · mean(g · x̂)) · rstd
//! rms norm:    x̂ = x · rstd;              g_input = (g - x̂ · mean(g · x̂)) · rstd
//! weight norm: v̂ = v / |v|;               w = v̂ · g;  g_v = (g_w - v̂ · sum(g_w · v̂)) · g / |v|
//! ```
//!
//! Statistics are computed and saved in float32 for 16-bit inputs.

use stablehlo::{DTypes, Value};

use crate::common::parameters::{affine, check_parameters, check_scalar_type, parameter_dtype, wanted, wide_or_none};
use crate::common::reductions::{Order, mean, moments, vector_norm};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, many};

pub(crate) const ROWS: &[Row] = &[
    many(&["native_layer_norm"], layer_norm).takes(&["input"], DTypes::FLOATS).bounded(),
    many(&["native_layer_norm_backward"], layer_norm_backward).bounded(),
    many(&["native_group_norm"], group_norm).takes(&["input"], DTypes::FLOATS).bounded(),
    many(&["native_group_norm_backward"], group_norm_backward).bounded(),
    many(&["_fused_rms_norm"], rms_norm).bounded(),
    many(&["_fused_rms_norm_backward"], rms_norm_backward).bounded(),
    many(&["_weight_norm_interface"], weight_norm).takes(&["v"], DTypes::FLOATS).bounded(),
    many(&["_weight_norm_interface_backward"], weight_norm_backward).takes(&["saved_v"], DTypes::FLOATS).bounded(),
];

// ---- layer norm ----------------------------------------------------------------------------------

/// The batch dimensions and the normalized dimensions.
fn outer_and_inner(cx: &Cx<'_>, rank: usize) -> Result<(Vec<usize>, Vec<usize>)> {
    let outer = rank.saturating_sub(cx.ints("normalized_shape")?.len());
    Ok(((0..outer).collect(), (outer..rank).collect()))
}

/// The mean over `axes` and the reciprocal of the standard deviation, with `axes` kept as dimensions of size 1.
fn mean_and_rstd<'b>(cx: &Cx<'b>, x: Value<'b>, axes: &[usize]) -> Result<(Value<'b>, Value<'b>)> {
    let (mean, squares) = moments(x, axes);
    let variance = squares / x.count(axes, squares.dtype());
    Ok((mean, (variance + cx.scalar("eps", x.dtype())?).rsqrt()))
}

fn layer_norm<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    check_parameters(cx, input.dtype(), &["weight", "bias"])?;
    let wide = input.dtype().opmath();
    let x = input.convert(wide);
    let (_, inner) = outer_and_inner(cx, x.rank())?;
    let (mean, rstd) = mean_and_rstd(cx, x, &inner)?;
    let output = affine((x - mean) * rstd, wide_or_none(cx, "weight", wide), wide_or_none(cx, "bias", wide));
    Ok(vec![output.convert(input.dtype()), mean, rstd])
}

/// The gradient of the input of `normalized = (x - mean(x)) · rstd`, given the gradient `grad` of `normalized`.
fn centered_gradient<'b>(grad: Value<'b>, normalized: Value<'b>, rstd: Value<'b>, axes: &[usize]) -> Value<'b> {
    let level = mean(grad, axes).keep_dims(axes);
    let slope = mean(grad * normalized, axes).keep_dims(axes);
    (grad - level - normalized * slope) * rstd
}

fn layer_norm_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    let dtype = input.dtype();
    let wide = dtype.opmath();
    let grad = cx.tensor("grad_out")?.convert(wide);
    let (mean, rstd) = (cx.tensor("mean")?.convert(wide), cx.tensor("rstd")?.convert(wide));
    let normalized = (input.convert(wide) - mean) * rstd;
    let (outer, inner) = outer_and_inner(cx, input.rank())?;
    let weighted = affine(grad, wide_or_none(cx, "weight", wide), None);
    let grad_weight = (grad * normalized).reduce_sum(&outer);
    wanted(
        cx,
        &[
            centered_gradient(weighted, normalized, rstd, &inner).convert(dtype),
            grad_weight.convert(parameter_dtype(cx, "weight", dtype)),
            grad.reduce_sum(&outer).convert(parameter_dtype(cx, "bias", dtype)),
        ],
    )
}

// ---- group norm ----------------------------------------------------------------------------------

/// The shape that group norm is computed in: [batch, group, channel of the group, position].
fn by_group(cx: &Cx<'_>, input: Value<'_>) -> Result<[i64; 4]> {
    let groups = cx.int("group")?;
    let places = input.dims()[2..].iter().product();
    Ok([input.dim(0), groups, cx.int("C")? / groups.max(1), places])
}

/// The normalized dimensions of [`by_group`].
const GROUP: [usize; 2] = [2, 3];

fn group_norm<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    check_parameters(cx, input.dtype(), &["weight", "bias"])?;
    let wide = input.dtype().opmath();
    let dims = by_group(cx, input)?;
    let x = input.convert(wide).reshape(&dims);
    let (mean, rstd) = mean_and_rstd(cx, x, &GROUP)?;
    let parameter = |name: &str| wide_or_none(cx, name, wide).map(|value| value.reshape(&[dims[1], dims[2], 1]));
    let output = affine((x - mean) * rstd, parameter("weight"), parameter("bias"));
    let statistic = |value: Value<'b>| value.reshape(&dims[..2]);
    Ok(vec![output.reshape(&input.dims()).convert(input.dtype()), statistic(mean), statistic(rstd)])
}

fn group_norm_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    let dtype = input.dtype();
    let wide = dtype.opmath();
    let dims = by_group(cx, input)?;
    let grad = cx.tensor("grad_out")?.convert(wide).reshape(&dims);
    let statistic = |value: Value<'b>| value.convert(wide).reshape(&[dims[0], dims[1], 1, 1]);
    let rstd = statistic(cx.tensor("rstd")?);
    let normalized = (input.convert(wide).reshape(&dims) - statistic(cx.tensor("mean")?)) * rstd;
    let weight = wide_or_none(cx, "weight", wide).map(|weight| weight.reshape(&[dims[1], dims[2], 1]));
    // Two sums over positions are shared by all three gradients. The barriers keep XLA from also summing over the
    // batch in the same step, which is slow because the dimensions are not adjacent.
    let sum = grad.reduce_sum(&[3]).barrier().unsqueeze(3);
    let product = (grad * normalized).reduce_sum(&[3]).barrier().unsqueeze(3);
    let group_mean =
        |sums: Value<'b>| affine(sums, weight, None).reduce_sum(&[2]).unsqueeze(2) / grad.count(&GROUP, wide);
    let gradient = (affine(grad, weight, None) - group_mean(sum) - normalized * group_mean(product)) * rstd;
    let of_parameter = |sums: Value<'b>| sums.reduce_sum(&[0]).flatten().convert(parameter_dtype(cx, "weight", dtype));
    wanted(cx, &[gradient.reshape(&input.dims()).convert(dtype), of_parameter(product), of_parameter(sum)])
}

// ---- root mean square norm -----------------------------------------------------------------------

fn rms_norm<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    let wide = input.dtype().opmath();
    let x = input.convert(wide);
    let (_, inner) = outer_and_inner(cx, x.rank())?;
    let epsilon = cx.scalar_or_none("eps", wide)?.unwrap_or(cx.b().scalar(wide.epsilon(), wide));
    let rstd = (mean(x.square(), &inner).keep_dims(&inner) + epsilon).rsqrt();
    let output = affine(x * rstd, wide_or_none(cx, "weight", wide), None);
    Ok(vec![output.convert(input.dtype()), rstd])
}

fn rms_norm_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let input = cx.tensor("input")?;
    let dtype = input.dtype();
    let wide = dtype.opmath();
    let (grad, rstd) = (cx.tensor("grad_out")?.convert(wide), cx.tensor("rstd")?.convert(wide));
    let (outer, inner) = outer_and_inner(cx, input.rank())?;
    let normalized = input.convert(wide) * rstd;
    let weighted = affine(grad, wide_or_none(cx, "weight", wide), None);
    let slope = mean(weighted * normalized, &inner).keep_dims(&inner);
    let grad_weight = (grad * normalized).reduce_sum(&outer);
    wanted(
        cx,
        &[
            ((weighted - normalized * slope) * rstd).convert(dtype),
            grad_weight.convert(parameter_dtype(cx, "weight", dtype)),
        ],
    )
}

// ---- weight norm ---------------------------------------------------------------------------------

/// All dimensions of the weight but `dim`. PyTorch's kernels take no negative `dim`.
fn axes_beside_dim(cx: &Cx<'_>, rank: usize) -> Result<Vec<usize>> {
    let dim = cx.int("dim")?;
    if !(0..rank as i64).contains(&dim) {
        return Err(Error::runtime(format!("{}: there is no dimension {dim} of {rank}", cx.operator)));
    }
    Ok((0..rank).filter(|&axis| axis as i64 != dim).collect())
}

fn weight_norm<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (v, g) = (cx.tensor("v")?, cx.tensor("g")?);
    check_scalar_type(g, v.dtype())?;
    let wide = v.dtype().opmath();
    let axes = axes_beside_dim(cx, v.rank())?;
    let x = v.convert(wide);
    let norm = vector_norm(x, Order::Two, &axes).keep_dims(&axes);
    Ok(vec![(x * (g.convert(wide) / norm)).convert(v.dtype()), norm])
}

fn weight_norm_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (v, g) = (cx.tensor("saved_v")?, cx.tensor("saved_g")?);
    let wide = v.dtype().opmath();
    let axes = axes_beside_dim(cx, v.rank())?;
    let (grad, norm) = (cx.tensor("grad_w")?, cx.tensor("saved_norms")?);
    for (value, expected) in [(grad, v.dtype()), (g, v.dtype()), (norm, wide)] {
        check_scalar_type(value, expected)?;
    }
    let grad = grad.convert(wide);
    let direction = v.convert(wide) / norm;
    let grad_g = (grad * direction).reduce_sum(&axes).keep_dims(&axes);
    let grad_v = (grad - direction * grad_g) * (g.convert(wide) / norm);
    Ok(vec![grad_v.convert(v.dtype()), grad_g.convert(g.dtype())])
}
