//! Elementwise losses of a prediction and a target.

use stablehlo::{DType, DTypes, Value, broadcast_dims};

use crate::common::loss_reduction::Reduction;
use crate::common::parameters::wide_or_none;
use crate::cx::Cx;
use crate::error::{Error, Result, cannot_be_cast, scalar_type_name};
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["mse_loss"], |cx| loss(cx, |x, target| Ok((x - target).square()))).takes(&["self", "target"], DTypes::FLOATS),
    one(&["mse_loss_backward"], |cx| gradient(cx, |x, target| Ok((x - target) * 2.0))),
    one(&["smooth_l1_loss"], |cx| {
        loss(cx, |x, target| {
            let (distance, beta) = ((x - target).abs(), cx.scalar("beta", x.dtype())?);
            let near = distance.square() * 0.5 / beta;
            Ok(distance.lt(beta).select(near, distance - beta * 0.5))
        })
    })
    .requires(&["beta"], |numbers, _| numbers[0] >= 0.0)
    .takes(&["self", "target"], DTypes::FLOATS),
    one(&["smooth_l1_loss_backward"], |cx| {
        gradient(cx, |x, target| {
            let (difference, beta) = (x - target, cx.scalar("beta", x.dtype())?);
            Ok(difference.abs().lt(beta).select(difference / beta, difference.sign()))
        })
    }),
    one(&["huber_loss"], |cx| {
        loss_of_prediction(cx, |x, target| {
            let (distance, delta) = ((x - target).abs(), cx.scalar("delta", x.dtype())?);
            Ok(distance.le(delta).select(distance.square() * 0.5, delta * (distance - delta * 0.5)))
        })
    })
    .requires(&["delta"], |numbers, _| numbers[0] > 0.0)
    .takes(&["self", "target"], DTypes::FLOATS),
    one(&["huber_loss_backward"], |cx| {
        gradient(cx, |x, target| {
            let delta = cx.scalar("delta", x.dtype())?;
            Ok((x - target).clamp(-delta, delta))
        })
    }),
    one(&["soft_margin_loss"], |cx| {
        loss_of_prediction(cx, |x, target| {
            let elements = softplus(-(x * target));
            check_shape(elements, &cx.ty("self")?.dims).map(|()| elements)
        })
    }),
    one(&["soft_margin_loss_backward"], |cx| gradient(cx, |x, target| Ok(-(target * (-(x * target)).logistic())))),
    one(&["binary_cross_entropy"], |cx| {
        let [expected, found] = [cx.ty("self")?.dtype, cx.ty("target")?.dtype];
        if expected != found {
            let [expected, found] = [expected, found].map(scalar_type_name);
            return Err(Error::runtime(format!("Found dtype {found} but expected {expected}")));
        }
        loss(cx, |x, target| {
            for (numbers, name) in [(x, "input"), (target, "target")] {
                let message = format!("all elements of {name} should be between 0 and 1");
                cx.check_fractions(numbers, Error::runtime(message));
            }
            // PyTorch clamps each logarithm to at least -100, so that the loss is finite for a probability of 0.
            let (yes, no) = (x.log().max(-100.0), (-x).log_1p().max(-100.0));
            Ok(weighted(cx, -(target * yes + (target.splat_like(1.0) - target) * no)))
        })
    }),
    one(&["binary_cross_entropy_backward"], |cx| {
        gradient(cx, |x, target| {
            let variance = ((x.splat_like(1.0) - x) * x).max(1e-12);
            Ok(weighted(cx, (x - target) / variance))
        })
    }),
    one(&["binary_cross_entropy_with_logits"], |cx| {
        loss(cx, |x, target| {
            let one = target.splat_like(1.0);
            let no = softplus(-x);
            let no = match wide_or_none(cx, "pos_weight", x.dtype()) {
                Some(weight) => no * ((weight - 1.0) * target + 1.0),
                None => no,
            };
            Ok(weighted(cx, (one - target) * x + no))
        })
    })
    .takes(&["self"], DTypes::FLOATS),
]);

/// `log(1 + exp x)` without overflow.
fn softplus(x: Value<'_>) -> Value<'_> {
    x.max(0.0) + (-x.abs()).exp().log_1p()
}

/// An elementwise loss times the argument `weight`, if given.
fn weighted<'b>(cx: &Cx<'b>, loss: Value<'b>) -> Value<'b> {
    wide_or_none(cx, "weight", loss.dtype()).map_or(loss, |weight| loss * weight)
}

/// The common type of prediction and target.
fn common_dtype(cx: &Cx<'_>) -> Result<DType> {
    cx.promoted(&["self", "target"])
}

/// The elementwise `f` of `self` and `target`, reduced.
fn loss<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>) -> Result<Value<'b>>) -> Result<Value<'b>> {
    let dtype = common_dtype(cx)?;
    let wide = dtype.opmath();
    let (x, target) = (cx.operand("self", wide)?, cx.operand("target", wide)?);
    let elements = f(x, target)?;
    // A weight does not make the loss larger.
    check_shape(elements, &broadcast_dims(&x.dims(), &target.dims()).unwrap_or_else(|| elements.dims()))?;
    Ok(Reduction::of(cx)?.apply(elements).convert(dtype))
}

/// Refuses a loss of another shape than the memory that PyTorch allocates for it.
fn check_shape(elements: Value<'_>, allocated: &[i64]) -> Result<()> {
    let dims = elements.dims();
    if dims == allocated {
        return Ok(());
    }
    Err(Error::runtime(format!("output with shape {allocated:?} doesn't match the broadcast shape {dims:?}")))
}

/// [`loss`] of a prediction of floats: PyTorch allocates the result with the prediction's type.
fn loss_of_prediction<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>) -> Result<Value<'b>>) -> Result<Value<'b>> {
    let own = cx.ty("self")?;
    if !own.dtype.is_float() {
        return Err(cannot_be_cast(common_dtype(cx)?, own.dtype));
    }
    loss(cx, f)
}

/// `grad_output` times the elementwise derivative `f` of `self` and `target`.
fn gradient<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>) -> Result<Value<'b>>) -> Result<Value<'b>> {
    let dtype = common_dtype(cx)?;
    let wide = dtype.opmath();
    let derivative = f(cx.operand("self", wide)?, cx.operand("target", wide)?)?;
    let grad = cx.tensor("grad_output")?.convert(wide);
    let axes: Vec<usize> = (0..derivative.rank()).collect();
    Ok((Reduction::of(cx)?.gradient(grad, derivative, &axes) * derivative).convert(dtype))
}
