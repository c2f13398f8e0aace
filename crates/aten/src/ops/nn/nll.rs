//! The negative log likelihood of classes.

use stablehlo::{DType, DTypes, Value};

use crate::check::{Check, Counts};
use crate::common::loss_reduction::Reduction;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{take_along, take_flat};
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    many(&["nll_loss_forward", "nll_loss2d_forward"], forward)
        .one_dtype(&["self", "weight"])
        .takes(&["self"], DTypes::FLOATS)
        .inputs(&["ignore_index"]),
    one(&["nll_loss_backward", "nll_loss2d_backward"], backward)
        .one_dtype(&["self", "grad_output", "weight"])
        .inputs(&["ignore_index"]),
]);

/// The target classes of a prediction whose dimension `axis` is the class.
struct Targets<'b> {
    /// The class dimension, which the target does not have.
    axis: usize,
    /// The given class numbers, 0 where ignored. Shape of the prediction, but 1 along `axis`.
    named: Value<'b>,
    /// The class numbers as gather indices, same shape.
    classes: Value<'b>,
    /// Whether the target is not ignored, same shape.
    counts: Value<'b>,
    /// The weight of the class, 0 where ignored, same shape.
    weights: Value<'b>,
}

impl<'b> Targets<'b> {
    fn of(cx: &Cx<'b>, prediction: Value<'b>) -> Result<Targets<'b>> {
        let axis = usize::from(prediction.rank() > 1);
        let mut dims = prediction.dims();
        if let Some(classes) = dims.get_mut(axis) {
            *classes = 1;
        }
        let target = cx.tensor("target")?.convert(DType::I64).reshape(&dims);
        let counts = target.ne(cx.scalar("ignore_index", DType::I64)?);
        let named = counts.select(target, 0);
        let classes = named.convert(DType::I32);
        let dtype = prediction.dtype();
        let weights = match cx.tensor_or_none("weight") {
            Some(weight) => counts.select(take_flat(weight.convert(dtype), classes), 0),
            None => counts.convert(dtype),
        };
        Ok(Targets { axis, named, classes, counts, weights })
    }
}

fn all_axes(x: Value<'_>) -> Vec<usize> {
    (0..x.rank()).collect()
}

fn forward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let prediction = cx.tensor("self")?;
    let dtype = prediction.dtype();
    let wide = prediction.convert(dtype.opmath());
    let targets = Targets::of(cx, wide)?;
    let error = Error::index(format!("Target {} is out of bounds.", Check::NUMBER));
    cx.check_index(targets.named, prediction, targets.axis, Counts::FromStart, error)?;
    let chosen = take_along(prediction, targets.axis, targets.classes).convert(wide.dtype());
    // Selects instead of multiplying, because an ignored prediction may be infinite.
    let elements = targets.counts.select(-chosen * targets.weights, 0);
    let total_weight = targets.weights.reduce_sum(&all_axes(elements));
    let sum = elements.reduce_sum(&all_axes(elements));
    let reduction = Reduction::of(cx)?;
    if reduction == Reduction::None && prediction.rank() > 1 {
        return Ok(vec![elements.squeeze(targets.axis).convert(dtype), cx.b().scalar(0, dtype)]);
    }
    let loss = if reduction == Reduction::Mean { sum / total_weight } else { sum };
    Ok(vec![loss.convert(dtype), total_weight.convert(dtype)])
}

fn backward<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let prediction = cx.tensor("self")?;
    let dtype = prediction.dtype();
    let wide = dtype.opmath();
    let targets = Targets::of(cx, prediction.convert(wide))?;
    let grad = cx.tensor("grad_output")?.convert(wide);
    let grad = match Reduction::of(cx)? {
        Reduction::None if prediction.rank() > 1 => grad.unsqueeze(targets.axis),
        Reduction::Mean => grad.reshape(&[]) / cx.tensor("total_weight")?.convert(wide).reshape(&[]),
        _ => grad.reshape(&[]),
    };
    // A comparison with the class numbers fuses; a scatter would not.
    let class = cx.b().iota(DType::I32, &prediction.dims(), targets.axis);
    let chosen = class.eq(targets.classes) & targets.counts;
    Ok(chosen.select(-(grad * targets.weights), 0).convert(dtype))
}
