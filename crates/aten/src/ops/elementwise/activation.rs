//! Activation functions and their gradients.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, SQRT_2};

use stablehlo::{DType, DTypes, Value};

use crate::common::bounded_views;
use crate::common::clamp::clamp_to;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::number_check::Fit;
use crate::ops::elementwise::complex::logistic;
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    // Piecewise linear functions.
    one(&["relu"], |cx| Ok(cx.tensor("self")?.max(0))).takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["threshold"], |cx| {
        for name in ["threshold", "value"] {
            cx.check_number(name, cx.ty("self")?.dtype, Fit::Converts)?;
        }
        let (threshold, value) = (number(cx, "threshold")?, number(cx, "value")?);
        cx.pointwise(["self"], |[x]| x.le(threshold).select(value, x))
    })
    .takes(&["self"], DTypes::REAL_NUMBERS),
    one(&["threshold_backward"], |cx| {
        let threshold = number(cx, "threshold")?;
        cx.pointwise(GRADIENT, |[grad, x]| x.le(threshold).select(grad.splat_like(0), grad))
    }),
    one(&["hardtanh"], |cx| clamp_to(cx, cx.tensor("self")?, ["min_val", "max_val"])).takes(&["self"], DTypes::NUMBERS),
    one(&["hardtanh_backward"], |cx| {
        let (low, high) = (number(cx, "min_val")?, number(cx, "max_val")?);
        cx.pointwise(GRADIENT, |[grad, x]| (x.le(low) | x.ge(high)).select(grad.splat_like(0), grad))
    }),
    one(&["leaky_relu"], |cx| {
        let slope = number(cx, "negative_slope")?;
        cx.pointwise(["self"], |[x]| x.gt(0).select(x, x * slope))
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["leaky_relu_backward"], |cx| {
        let slope = number(cx, "negative_slope")?;
        cx.pointwise(GRADIENT, |[grad, x]| x.gt(0).select(grad, grad * slope))
    })
    .requires(&["negative_slope", "self_is_result"], |n, _| keeps_sign(n[0]) || n[1] == 0.0),
    one(&["_prelu_kernel"], |cx| cx.pointwise(["self", "weight"], |[x, w]| x.gt(0).select(x, x * w)))
        .takes(&["self"], DTypes::FLOATS),
    many(&["_prelu_kernel_backward"], |cx| {
        let for_self =
            cx.pointwise(["grad_output", "self", "weight"], |[grad, x, w]| x.gt(0).select(grad, grad * w))?;
        let for_weight = cx.pointwise(GRADIENT, |[grad, x]| x.gt(0).select(x.splat_like(0), grad * x))?;
        Ok(vec![for_self, for_weight])
    }),
    one(&["rrelu_with_noise_backward"], |cx| {
        if cx.bool("training")? {
            return cx.pointwise(["grad_output", "noise"], |[grad, noise]| grad * noise);
        }
        let slope = (number(cx, "lower")? + number(cx, "upper")?) * 0.5;
        cx.pointwise(GRADIENT, |[grad, x]| x.gt(0).select(grad, grad * slope))
    })
    .requires(&["lower", "upper", "training", "self_is_result"], |n, _| {
        keeps_sign(n[0] + n[1]) || n[2] != 0.0 || n[3] == 0.0
    }),
    one(&["hardsigmoid"], |cx| cx.pointwise(["self"], |[x]| (x + 3.0).clamp(0.0, 6.0) / 6.0))
        .takes(&["self"], DTypes::FLOATS),
    one(&["hardsigmoid_backward"], |cx| {
        cx.pointwise(GRADIENT, |[grad, x]| (x.gt(-3.0) & x.lt(3.0)).select(grad / 6.0, 0))
    }),
    one(&["hardswish"], |cx| cx.pointwise(["self"], |[x]| x * (x + 3.0).clamp(0.0, 6.0) / 6.0))
        .takes(&["self"], DTypes::FLOATS),
    one(&["hardswish_backward"], |cx| {
        cx.pointwise(GRADIENT, |[grad, x]| {
            let slope = x.lt(3.0).select(grad * (x / 3.0 + 0.5), grad);
            x.le(-3.0).select(grad.splat_like(0), slope)
        })
    }),
    one(&["hardshrink"], |cx| {
        let lambda = number(cx, "lambd")?;
        cx.pointwise(["self"], |[x]| within(x, lambda).select(x.splat_like(0), x))
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["softshrink"], |cx| {
        let lambda = number(cx, "lambd")?;
        cx.pointwise(["self"], |[x]| {
            let shrunk = x.gt(0).select(x - lambda, x + lambda);
            // Zero, or NaN for NaN.
            x.abs().gt(lambda).select(shrunk, x * 0.0)
        })
    })
    .requires(&["lambd"], |n, dtype| (0.0..=dtype.real().highest().to_f64()).contains(&n[0]))
    .takes(&["self"], DTypes::FLOATS),
    one(&["hardshrink_backward", "softshrink_backward"], |cx| {
        let lambda = number(cx, "lambd")?;
        let grad = if cx.is_none("grad_out") { "grad_output" } else { "grad_out" };
        cx.pointwise([grad, "self"], |[grad, x]| within(x, lambda).select(grad.splat_like(0), grad))
    }),
    // Smooth functions.
    one(&["elu"], |cx| {
        let (alpha, scale, input_scale) = (number(cx, "alpha")?, number(cx, "scale")?, number(cx, "input_scale")?);
        cx.pointwise(["self"], |[x]| x.gt(0).select(x, (x * input_scale).exp_m1() * alpha) * scale)
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["elu_backward"], elu_backward).requires(&["alpha", "is_result"], |n, _| keeps_sign(n[0]) || n[1] == 0.0),
    one(&["celu"], |cx| {
        let alpha = number(cx, "alpha")?;
        cx.pointwise(["self"], |[x]| x.gt(0).select(x, (x / alpha).exp_m1() * alpha))
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["gelu"], |cx| match is_approximated(cx)? {
        true => cx.pointwise(["self"], |[x]| x * 0.5 * (tanh_of_gelu(x) + 1.0)),
        false => cx.pointwise(["self"], |[x]| x * normal_distribution(x)),
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["gelu_backward"], |cx| match is_approximated(cx)? {
        true => cx.pointwise(GRADIENT, |[grad, x]| grad * tanh_gelu_slope(x)),
        false => cx.pointwise(GRADIENT, |[grad, x]| {
            let density = (x * x * -0.5).exp() * (0.5 * FRAC_2_SQRT_PI * FRAC_1_SQRT_2);
            grad * (normal_distribution(x) + x * density)
        }),
    }),
    one(&["silu"], |cx| cx.pointwise(["self"], |[x]| x * logistic(x))),
    one(&["silu_backward"], |cx| {
        cx.pointwise(GRADIENT, |[grad, x]| {
            let sigmoid = logistic(x);
            grad * sigmoid * (x * (-sigmoid + 1.0) + 1.0)
        })
    }),
    one(&["mish"], |cx| cx.pointwise(["self"], |[x]| x * x.exp().log_1p().tanh())).takes(&["self"], DTypes::FLOATS),
    one(&["mish_backward"], |cx| {
        cx.pointwise(GRADIENT, |[grad, x]| {
            let (sigmoid, tanh) = (x.logistic(), x.exp().log_1p().tanh());
            grad * (tanh + x * sigmoid * (-tanh * tanh + 1.0))
        })
    }),
    one(&["softplus"], |cx| {
        let (beta, threshold) = (number(cx, "beta")?, number(cx, "threshold")?);
        cx.pointwise(["self"], |[x]| {
            let scaled = x * beta;
            scaled.gt(threshold).select(x, scaled.exp().log_1p() / beta)
        })
    }),
    one(&["softplus_backward"], |cx| {
        let (beta, threshold) = (number(cx, "beta")?, number(cx, "threshold")?);
        cx.pointwise(GRADIENT, |[grad, x]| {
            let scaled = x * beta;
            scaled.gt(threshold).select(grad, grad * scaled.logistic())
        })
    }),
    many(&["log_sigmoid_forward"], |cx| {
        // The second result is what the CPU's kernel saves for the backward pass. This backend's backward pass does
        // not read it.
        let buffer = cx.pointwise(["self"], |[x]| (-x.abs()).exp())?;
        Ok(vec![cx.pointwise(["self"], |[x]| x.min(0) - (-x.abs()).exp().log_1p())?, buffer])
    }),
    one(&["log_sigmoid_backward"], |cx| cx.pointwise(GRADIENT, |[grad, x]| grad * (-x).logistic())),
    one(&["sigmoid_backward"], |cx| {
        cx.pointwise(["grad_output", "output"], |[grad, y]| grad * ((-y + 1.0) * y).conjugate())
    }),
    one(&["tanh_backward"], |cx| {
        cx.pointwise(["grad_output", "output"], |[grad, y]| grad * (-(y * y) + 1.0).conjugate())
    }),
    one(&["logit_backward"], |cx| {
        let limit = cx.scalar_or_none("eps", cx.ty("self")?.dtype.opmath())?;
        cx.pointwise(GRADIENT, |[grad, x]| {
            let (low, outside) = match limit {
                Some(eps) => (eps, 0.0),
                None => (x.builder().scalar(0, x.dtype()), f64::NAN),
            };
            (x.ge(low) & x.le(-low + 1.0)).select(grad / (x * (-x + 1.0)), outside)
        })
    }),
    // Gated functions.
    one(&["glu"], |cx| {
        let (value, gate, _) = halves(cx, "self")?;
        Ok(cx.resized(0, (value * gate.logistic()).convert(cx.ty("self")?.dtype)))
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["glu_backward"], |cx| {
        let (value, gate, axis) = halves(cx, "self")?;
        let dtype = cx.ty("self")?.dtype;
        let grad = half_of(cx, "grad_output", dtype, value, axis)?;
        let sigmoid = gate.logistic();
        let for_value = grad * sigmoid;
        let for_gate = for_value * value * (-sigmoid + 1.0);
        let joined = cx.b().concatenate(&[for_value, for_gate], axis).convert(dtype);
        let x = cx.tensor("self")?;
        if !x.is_bounded_along(&[axis]) {
            return Ok(joined);
        }
        let written = bounded_views::write_at(joined, for_gate.convert(dtype), axis, x.size(axis, DType::I64) / 2);
        Ok(written.pad_axis(axis, 0, 0, x.dim(axis) - written.dim(axis)).with_extent(axis, x.extent(axis)))
    }),
    one(&["glu_jvp"], |cx| {
        let (value_change, gate_change, _) = halves(cx, "dx")?;
        let (_, gate, axis) = halves(cx, "x")?;
        let dtype = cx.ty("x")?.dtype;
        let result = half_of(cx, "glu", dtype, gate, axis)?;
        let sigmoid = gate.logistic();
        Ok(cx.resized(0, (value_change * sigmoid + gate_change * result * (-sigmoid + 1.0)).convert(dtype)))
    }),
]);

const GRADIENT: [&str; 2] = ["grad_output", "self"];

/// A number argument in the type that the tensor is computed in.
fn number<'b>(cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
    let tensor = if cx.is_none("self") { "self_or_result" } else { "self" };
    cx.scalar(name, cx.ty(tensor)?.dtype.opmath())
}

/// Whether `|x| <= bound`; false for NaN.
fn within<'b>(x: Value<'b>, bound: Value<'b>) -> Value<'b> {
    x.ge(-bound) & x.le(bound)
}

/// Whether the argument `approximate` asks for the form with tanh.
fn is_approximated(cx: &Cx) -> Result<bool> {
    match cx.str("approximate")?.as_str() {
        "tanh" => Ok(true),
        "none" => Ok(false),
        _ => Err(Error::runtime("approximate argument must be either none or tanh.")),
    }
}

/// Whether an activation of this slope keeps the sign of its input, so that its result in place decides the gradient.
fn keeps_sign(slope: f64) -> bool {
    slope.is_nan() || slope >= 0.0
}

fn elu_backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let (alpha, scale, input_scale) = (number(cx, "alpha")?, number(cx, "scale")?, number(cx, "input_scale")?);
    let from_result = cx.bool("is_result")?;
    cx.pointwise(["grad_output", "self_or_result"], |[grad, x]| {
        let floor = alpha * scale;
        let slope = if from_result { x + floor } else { (x * input_scale).exp() * floor };
        x.gt(0).select(grad * scale, grad * input_scale * slope)
    })
}

/// The distribution function of the standard normal distribution. It uses erf, as PyTorch does: erfc would be more
/// precise far below zero, but costs twice as much.
fn normal_distribution<'b>(x: Value<'b>) -> Value<'b> {
    ((x * FRAC_1_SQRT_2).erf() + 1.0) * 0.5
}

/// Gelu's cubic coefficient (Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016).
const CUBIC: f64 = 0.044715;
const SQRT_2_OVER_PI: f64 = SQRT_2 * FRAC_2_SQRT_PI * 0.5;

fn tanh_of_gelu<'b>(x: Value<'b>) -> Value<'b> {
    ((x + x * x * x * CUBIC) * SQRT_2_OVER_PI).tanh()
}

fn tanh_gelu_slope<'b>(x: Value<'b>) -> Value<'b> {
    let tanh = tanh_of_gelu(x);
    let inner_slope = (x * x * (3.0 * CUBIC) + 1.0) * SQRT_2_OVER_PI;
    (tanh + 1.0) * 0.5 + x * 0.5 * (-tanh * tanh + 1.0) * inner_slope
}

/// The two halves of a tensor argument along `dim`, in the type of the computation, and the dimension. Halves of a bounded
/// dimension have all positions valid.
fn halves<'b>(cx: &Cx<'b>, name: &str) -> Result<(Value<'b>, Value<'b>, usize)> {
    let x = cx.tensor(name)?;
    let axis = cx.axis_arg("dim", x.rank())?;
    let x = x.convert(x.dtype().opmath());
    let half = x.dim(axis) / 2;
    if x.is_bounded_along(&[axis]) {
        x.require_prefix(axis, "halves of merged dimensions");
        let second = bounded_views::run_from(x, axis, x.size(axis, DType::I64) / 2, half);
        return Ok((x.whole_along(axis).slice_axis(axis, 0, half), second, axis));
    }
    Ok((x.slice_axis(axis, 0, half), x.slice_axis(axis, half, 2 * half), axis))
}

/// A tensor argument of the sizes of a half.
fn half_of<'b>(cx: &Cx<'b>, name: &str, dtype: DType, half: Value<'b>, axis: usize) -> Result<Value<'b>> {
    let given = cx.opmath_operand(name, dtype)?;
    given.require_prefix(axis, "halves of merged dimensions");
    Ok(given.whole_along(axis).pad_axis(axis, 0, 0, half.dim(axis) - given.dim(axis)))
}
