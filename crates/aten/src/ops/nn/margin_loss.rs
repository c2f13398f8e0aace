//! Hinge losses between the scores of the target classes and of the others.

use stablehlo::{DType, DTypes, Value};

use crate::common::loss_reduction::Reduction;
use crate::common::parameters::check_scalar_type;
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::{take_along, take_flat};
use crate::row::{Row, all_bounded, many, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["multi_margin_loss"], |cx| {
        let hinge = Hinge::of(cx)?;
        let (target, classes) = (cx.tensor("target")?, hinge.excess.dim(1));
        cx.check_from_to(target, 0, classes - 1, Error::runtime("target out of range"));
        let powered = if hinge.squared { hinge.excess.square() } else { hinge.excess };
        let losses = (powered * hinge.weight).reduce_sum(&[1]) / hinge.excess.dim(1) as f64;
        reduced(cx, losses)
    })
    .one_dtype(&["self", "weight"])
    .takes(&["self"], DTypes::FLOATS)
    .baked(&["p"]),
    one(&["multi_margin_loss_backward"], |cx| {
        let hinge = Hinge::of(cx)?;
        let slope = match hinge.squared {
            true => hinge.excess * 2.0,
            false => hinge.excess.gt(0.0).convert(hinge.excess.dtype()),
        };
        let others = slope * hinge.weight / hinge.excess.dim(1) as f64;
        let derivative = hinge.is_target.select(-others.reduce_sum(&[1]).unsqueeze(1), others);
        gradient(cx, derivative)
    })
    .one_dtype(&["self", "grad_output", "weight"])
    .baked(&["p"])
    .bounds_results(),
    many(&["multilabel_margin_loss_forward"], |cx| {
        check_scalar_type(cx.tensor("target")?, DType::I64)?;
        let labels = Labels::of(cx)?;
        let error = Error::runtime("argument #2 'target' is out of range");
        cx.check_from_to(cx.tensor("target")?, -1, labels.scores.dim(1) - 1, error);
        // For each pair (label, other class), the amount by which the margin is violated.
        let losses = labels.excess().reduce_sum(&[1, 2]) / labels.scores.dim(1) as f64;
        let is_target = labels.is_target.convert(cx.ty("self")?.dtype).reshape(&cx.ty("target")?.dims);
        Ok(vec![reduced(cx, losses)?, is_target])
    })
    .takes(&["self"], DTypes::FLOATS),
    one(&["multilabel_margin_loss_backward"], |cx| {
        let labels = Labels::of(cx)?;
        let excess = labels.excess();
        let size = labels.scores.dim(1);
        let pairs = excess.gt(0.0).convert(excess.dtype()) / size as f64;
        let as_other = pairs.reduce_sum(&[1]);
        // The gradient of a label is minus the sum over its pairs.
        let class = cx.b().iota(DType::I32, &excess.dims(), 2);
        let own = class.eq(labels.classes.unsqueeze(2)) & labels.present.unsqueeze(2);
        let as_label = own.convert(pairs.dtype()) * pairs.reduce_sum(&[2]).unsqueeze(2);
        gradient(cx, as_other - as_label.reduce_sum(&[1]))
    })
    .bounds_results(),
]);

/// The elements that are larger than zero, and zeros elsewhere. As in PyTorch, NaN is not larger.
fn above_zero<'b>(x: Value<'b>) -> Value<'b> {
    x.gt(0).select(x, 0)
}

/// Reduces the losses of the samples. The loss of an unbatched sample is 0-d.
fn reduced<'b>(cx: &Cx<'b>, losses: Value<'b>) -> Result<Value<'b>> {
    let ty = cx.ty("self")?;
    let losses = if ty.dims.len() < 2 { losses.reshape(&[]) } else { losses };
    Ok(Reduction::of(cx)?.apply(losses).convert(ty.dtype))
}

/// `grad_output` times the derivative of each sample's loss by its scores, in the shape of `self`.
fn gradient<'b>(cx: &Cx<'b>, derivative: Value<'b>) -> Result<Value<'b>> {
    let ty = cx.ty("self")?;
    let grad = cx.tensor("grad_output")?.convert(derivative.dtype());
    let grad = Reduction::of(cx)?.gradient(grad, derivative, &[0]);
    let grad = if grad.rank() == 1 { grad.unsqueeze(1) } else { grad };
    Ok((derivative * grad).reshape(&ty.dims).convert(ty.dtype))
}

/// A value with one row per sample. An unbatched sample becomes a batch of one.
fn rows<'b>(cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
    let x = cx.tensor(name)?;
    if let Some(classes) = x.rank().checked_sub(1) {
        x.require_whole(&[classes], "a margin loss");
    }
    Ok(if x.rank() < 2 { x.reshape(&[1, x.numel()]) } else { x })
}

/// The parts of a multi-class margin loss: [sample, class].
struct Hinge<'b> {
    squared: bool,
    /// The amount by which each class violates the margin; 0 at the target.
    excess: Value<'b>,
    is_target: Value<'b>,
    /// The weight of the sample's target.
    weight: Value<'b>,
}

impl<'b> Hinge<'b> {
    fn of(cx: &Cx<'b>) -> Result<Hinge<'b>> {
        let scores = rows(cx, "self")?;
        let scores = scores.convert(scores.dtype().opmath());
        let target = cx.tensor("target")?.reshape(&[scores.dim(0), 1]);
        let class = cx.b().iota(DType::I32, &scores.dims(), 1);
        let is_target = class.eq(target.convert(DType::I32));
        let margin = cx.scalar("margin", scores.dtype())?;
        let excess = above_zero(margin - take_along(scores, 1, target) + scores);
        let weight = match cx.tensor_or_none("weight") {
            Some(weight) => take_flat(weight.convert(scores.dtype()), target),
            None => cx.b().scalar(1.0, scores.dtype()),
        };
        let squared = !cx.is_none("p") && cx.number("p")?.to_f64() == 2.0;
        Ok(Hinge { squared, excess: is_target.select(excess.splat_like(0), excess), is_target, weight })
    }
}

/// The parts of a multi-label margin loss. A row of the target lists classes, up to the first negative number.
struct Labels<'b> {
    /// [sample, class].
    scores: Value<'b>,
    /// [sample, index in the list] (int32): the class; 0 after the end of the list.
    classes: Value<'b>,
    /// [sample, index in the list]: whether it is before the end of the list.
    present: Value<'b>,
    /// [sample, class]: whether the class is in the list.
    is_target: Value<'b>,
}

impl<'b> Labels<'b> {
    fn of(cx: &Cx<'b>) -> Result<Labels<'b>> {
        let (scores, target) = (rows(cx, "self")?, rows(cx, "target")?);
        let scores = scores.convert(scores.dtype().opmath());
        let ended = target.lt(0).scan(1, false.into(), |a, x| a | x);
        let present = !ended;
        let classes = present.select(target, 0).convert(DType::I32);
        let mut pairs = target.dims();
        pairs.push(scores.dim(1));
        let class = cx.b().iota(DType::I32, &pairs, 2);
        let is_target = (class.eq(classes.unsqueeze(2)) & present.unsqueeze(2)).reduce_any(&[1]);
        Ok(Labels { scores, classes, present, is_target })
    }

    /// [sample, index in the list, class]: `max(0, 1 - score(label) + score(class))` for each label and each class
    /// that is not a label.
    fn excess(&self) -> Value<'b> {
        let label = take_along(self.scores, 1, self.classes).unsqueeze(2);
        let excess = above_zero(self.scores.unsqueeze(1) - label + 1.0);
        let pair = self.present.unsqueeze(2) & !self.is_target.unsqueeze(1);
        pair.select(excess, 0)
    }
}
