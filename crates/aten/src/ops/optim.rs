//! Optimizer steps over lists of parameters, and gradient scaling for mixed precision.
//!
//! These operators only exist in mutating form: a row returns the new values of the written lists.

use stablehlo::{DType, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, many};

pub(crate) const ROWS: &[Row] = &[
    many(&["_fused_adam_", "_fused_adam_.tensor_lr"], |cx| adam(cx, false)).by_element(),
    many(&["_fused_adamw_", "_fused_adamw_.tensor_lr"], |cx| adam(cx, true)).by_element(),
    many(&["_fused_sgd_", "_fused_sgd_.tensor_lr"], sgd).by_element(),
    // The first form also declares the step counts as written. Neither form changes them.
    many(&["_fused_adagrad_"], |cx| Ok([adagrad(cx)?, cx.tensors("state_steps")?].concat())).by_element(),
    many(&["_fused_adagrad_.tensor_lr"], adagrad).by_element(),
    many(&["_amp_foreach_non_finite_check_and_unscale_"], |cx| {
        let grads = cx.tensors("self")?;
        let found = cx.tensor("found_inf")?;
        let inverse_scale = cx.tensor("inv_scale")?.reshape(&[]);
        let all_finite = grads
            .iter()
            .map(|grad| grad.is_finite().reduce_all(&all_axes(*grad)))
            .fold(cx.b().scalar(true, DType::Bool), |all, finite| all & finite);
        let found = all_finite.select(found, found.splat_like(1));
        let unscaled = grads.iter().map(|&grad| {
            let work = grad.dtype().opmath();
            (grad.convert(work) * inverse_scale.convert(work)).convert(grad.dtype())
        });
        Ok(unscaled.chain([found]).collect())
    }),
    many(&["_amp_update_scale_", "_amp_update_scale"], |cx| {
        let (scale, tracker) = (cx.tensor("self")?, cx.tensor("growth_tracker")?);
        let found = cx.tensor("found_inf")?.ne(0).reshape(&scale.dims());
        let successes = tracker + 1;
        let due = successes.eq(cx.int("growth_interval")?);
        let backed_off = scale * cx.scalar("scale_backoff_factor", scale.dtype())?;
        let grown = scale * cx.scalar("scale_growth_factor", scale.dtype())?;
        let kept = (due.reshape(&scale.dims()) & grown.is_finite()).select(grown, scale);
        let reset = found.reshape(&tracker.dims()) | due;
        Ok(vec![found.select(backed_off, kept), reset.select(tracker.splat_like(0), successes)])
    }),
];

fn all_axes(x: Value<'_>) -> Vec<usize> {
    (0..x.rank()).collect()
}

/// The lists that all steps share, and the conditions of a step.
struct Step<'b> {
    params: Vec<Value<'b>>,
    /// The gradients as given. They are written back unchanged if there is no scale.
    grads: Vec<Value<'b>>,
    grad_scale: Option<Value<'b>>,
    /// 0-d: a gradient overflowed, so nothing may change.
    skip: Option<Value<'b>>,
    maximize: bool,
}

impl<'b> Step<'b> {
    fn new(cx: &Cx<'b>) -> Result<Step<'b>> {
        let params = cx.tensors("self")?;
        let grads = list(cx, "grads", params.len())?;
        Ok(Step {
            params,
            grads,
            grad_scale: cx.tensor_or_none("grad_scale").map(|scale| scale.reshape(&[])),
            skip: cx.tensor_or_none("found_inf").map(|found| found.reshape(&[]).ne(0)),
            maximize: cx.bool("maximize")?,
        })
    }

    /// The unscaled gradient, in the type in which it is written back.
    fn unscaled(&self, grad: Value<'b>) -> Value<'b> {
        let work = grad.dtype().opmath();
        self.grad_scale.map_or(grad, |scale| self.kept(grad, grad.convert(work) / scale.convert(work)))
    }

    /// The unscaled gradient with the sign of the descent, in the type of the computation.
    fn descent(&self, grad: Value<'b>) -> Value<'b> {
        let grad = self.unscaled(grad).convert(grad.dtype().opmath());
        if self.maximize { -grad } else { grad }
    }

    /// `new` in the type of `old`, or `old` if the step is skipped.
    fn kept(&self, old: Value<'b>, new: Value<'b>) -> Value<'b> {
        let new = new.convert(old.dtype());
        self.skip.map_or(new, |skip| skip.select(old, new))
    }

    fn unscaled_grads(&self) -> Vec<Value<'b>> {
        self.grads.iter().map(|&grad| self.unscaled(grad)).collect()
    }
}

/// A tensor list with one element for each parameter.
fn list<'b>(cx: &Cx<'b>, name: &str, count: usize) -> Result<Vec<Value<'b>>> {
    let values = cx.tensors(name)?;
    if values.len() == count {
        Ok(values)
    } else {
        Err(Error::runtime(format!("{}: {count} parameters, but {} {name}", cx.operator, values.len())))
    }
}

/// The step counts of the parameters as one float64 value. `1 - beta^step` needs the precision if beta is near 1, and
/// there is only one number for each parameter.
fn steps<'b>(cx: &Cx<'b>, count: usize) -> Result<Value<'b>> {
    let steps: Vec<Value<'b>> = list(cx, "state_steps", count)?.iter().map(|step| step.reshape(&[1])).collect();
    Ok(cx.b().concatenate(&steps, 0).convert(DType::F64))
}

/// The learning rate: a number, or a tensor of one element.
fn rate<'b>(cx: &Cx<'b>, dtype: DType) -> Result<Value<'b>> {
    match cx.ty("lr") {
        Ok(ty) if ty.dims.len() == 1 && ty.numel() == 1 => Ok(cx.tensor("lr")?.reshape(&[]).convert(dtype)),
        _ => cx.scalar("lr", dtype),
    }
}

/// The number of parameter `index`.
fn element<'b>(numbers: Value<'b>, index: usize, dtype: DType) -> Value<'b> {
    numbers.select_axis(0, index as i64).convert(dtype)
}

/// Adam (Kingma and Ba, 2015); `decoupled` is AdamW (Loshchilov and Hutter, 2019).
fn adam<'b>(cx: &Cx<'b>, decoupled: bool) -> Result<Vec<Value<'b>>> {
    let step = Step::new(cx)?;
    let count = step.params.len();
    if count == 0 {
        return Ok(Vec::new());
    }
    let (means, squares) = (list(cx, "exp_avgs", count)?, list(cx, "exp_avg_sqs", count)?);
    let amsgrad = cx.bool("amsgrad")?;
    let maxima = if amsgrad { list(cx, "max_exp_avg_sqs", count)? } else { cx.tensors("max_exp_avg_sqs")? };
    let number = |name| cx.scalar(name, DType::F64);
    let (lr, beta1, beta2) = (rate(cx, DType::F64)?, number("beta1")?, number("beta2")?);
    let (decay, eps) = (number("weight_decay")?, number("eps")?);
    let steps = steps(cx, count)?;
    let step_sizes = lr / (-beta1.pow(steps) + 1);
    let root_corrections = (-beta2.pow(steps) + 1).sqrt();

    let (mut new_params, mut new_means, mut new_squares) = (Vec::new(), Vec::new(), Vec::new());
    let mut new_maxima = if amsgrad { Vec::new() } else { maxima.clone() };
    for (i, (&param, &grad)) in step.params.iter().zip(&step.grads).enumerate() {
        let work = param.dtype().opmath();
        let mut x = param.convert(work);
        let mut gradient = step.descent(grad).convert(work);
        if decoupled {
            x = x * (-(lr * decay) + 1).convert(work);
        } else {
            gradient = gradient + x * decay.convert(work);
        }
        let (mean, square) = (means[i].convert(work), squares[i].convert(work));
        let mean = mean + (gradient - mean) * (-beta1 + 1).convert(work);
        let square = square * beta2.convert(work) + gradient.square() * (-beta2 + 1).convert(work);
        let mut spread = square;
        if amsgrad {
            spread = maxima[i].convert(work).max(square);
            new_maxima.push(step.kept(maxima[i], spread));
        }
        let denominator = spread.sqrt() / element(root_corrections, i, work) + eps.convert(work);
        let x = x - mean / denominator * element(step_sizes, i, work);
        new_params.push(step.kept(param, x));
        new_means.push(step.kept(means[i], mean));
        new_squares.push(step.kept(squares[i], square));
    }
    Ok([new_params, step.unscaled_grads(), new_means, new_squares, new_maxima].concat())
}

/// Stochastic gradient descent, with momentum if there are buffers for it.
fn sgd<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let step = Step::new(cx)?;
    let buffers = cx.tensors("momentum_buffer_list")?;
    let (nesterov, first) = (cx.bool("nesterov")?, cx.bool("is_first_step")?);
    let (mut new_params, mut new_buffers) = (Vec::new(), Vec::new());
    for (i, (&param, &grad)) in step.params.iter().zip(&step.grads).enumerate() {
        let work = param.dtype().opmath();
        let x = param.convert(work);
        let mut gradient = step.descent(grad).convert(work) + x * cx.scalar("weight_decay", work)?;
        if let Some(&old) = buffers.get(i) {
            let momentum = cx.scalar("momentum", work)?;
            let undamped = -cx.scalar("dampening", work)? + 1;
            let buffer = if first { gradient } else { old.convert(work) * momentum + gradient * undamped };
            gradient = if nesterov { gradient + buffer * momentum } else { buffer };
            new_buffers.push(step.kept(old, buffer));
        }
        new_params.push(step.kept(param, x - gradient * rate(cx, work)?));
    }
    Ok([new_params, step.unscaled_grads(), new_buffers].concat())
}

/// Adagrad (Duchi, Hazan and Singer, 2011).
fn adagrad<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let step = Step::new(cx)?;
    let count = step.params.len();
    if count == 0 {
        return Ok(Vec::new());
    }
    let sums = list(cx, "state_sums", count)?;
    let number = |name| cx.scalar(name, DType::F64);
    let rates = rate(cx, DType::F64)? / ((steps(cx, count)? - 1) * number("lr_decay")? + 1);
    let (decay, eps) = (number("weight_decay")?, number("eps")?);
    let (mut new_params, mut new_sums) = (Vec::new(), Vec::new());
    for (i, (&param, &grad)) in step.params.iter().zip(&step.grads).enumerate() {
        let work = param.dtype().opmath();
        let x = param.convert(work);
        let gradient = step.descent(grad).convert(work) + x * decay.convert(work);
        let sum = sums[i].convert(work) + gradient.square();
        let x = x - gradient * element(rates, i, work) / (sum.sqrt() + eps.convert(work));
        new_params.push(step.kept(param, x));
        new_sums.push(step.kept(sums[i], sum));
    }
    Ok([new_params, step.unscaled_grads(), new_sums].concat())
}
