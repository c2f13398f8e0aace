//! Batch norm: normalizes each channel over the batch, with running statistics. Also the operators of synchronized
//! batch norm.
//!
//! Let x = input, g = gradient of the output, n = elements of a channel. Sums are over all elements of a channel.
//!
//! ```text
//! forward:   x̂ = (x - mean) · rstd;  y = x̂ · weight + bias
//! backward:  g_bias = Σ g;  g_weight = Σ g · x̂
//!            g_input = weight · rstd · (g - Σ g / n - x̂ · Σ g · x̂ / n)
//! ```

use stablehlo::{DType, DTypes, Value};

use crate::common::parameters::{affine, check_parameters, parameter_dtype, wanted, wide_or_none};
use crate::cx::{Arg, Cx};
use crate::error::{Error, Result};
use crate::row::{Row, many, one};
use crate::strides::memory_order;

pub(crate) const ROWS: &[Row] = &[
    // These operators write running statistics. The schema of the first does not declare it.
    many(&["native_batch_norm"], |cx| {
        let norm = BatchNorm::of(cx, cx.bool("training")?)?;
        Ok([norm.running(), norm.results()].concat())
    })
    .takes(&["input"], DTypes::FLOATS)
    .writes(&["running_mean", "running_var"])
    .bounded(),
    many(&["_native_batch_norm_legit"], |cx| {
        let norm = BatchNorm::of(cx, cx.bool("training")?)?;
        Ok([norm.running(), norm.results()].concat())
    })
    .takes(&["input"], DTypes::FLOATS)
    .bounded(),
    many(&["_batch_norm_with_update"], |cx| {
        let norm = BatchNorm::of(cx, true)?;
        Ok([norm.running(), norm.results(), vec![reserve(cx)]].concat())
    })
    .takes(&["input"], DTypes::FLOATS)
    .bounded(),
    // These operators do not write running statistics, or return new ones.
    many(&["_native_batch_norm_legit.no_stats"], |cx| Ok(BatchNorm::of(cx, cx.bool("training")?)?.results()))
        .takes(&["input"], DTypes::FLOATS)
        .bounded(),
    many(&["_native_batch_norm_legit_no_training"], |cx| Ok(BatchNorm::of(cx, false)?.results()))
        .takes(&["input"], DTypes::FLOATS)
        .bounded(),
    many(&["_batch_norm_no_update"], |cx| {
        // Uses the batch's statistics if there are no running statistics.
        let norm = BatchNorm::of(cx, cx.is_none("running_mean"))?;
        Ok([norm.results(), vec![reserve(cx)]].concat())
    })
    .takes(&["input"], DTypes::FLOATS)
    .bounded(),
    many(&["_native_batch_norm_legit_functional"], |cx| {
        let norm = BatchNorm::of(cx, cx.bool("training")?)?;
        Ok([norm.results(), norm.running()].concat())
    })
    .takes(&["input"], DTypes::FLOATS)
    .bounded(),
    many(&["_batch_norm_with_update_functional"], |cx| {
        let norm = BatchNorm::of(cx, true)?;
        Ok([norm.results(), vec![reserve(cx)], norm.running()].concat())
    })
    .takes(&["input"], DTypes::FLOATS)
    .bounded(),
    many(&["native_batch_norm_backward"], |cx| backward(cx, cx.bool("train")?, "save_invstd")).bounded(),
    many(&["batch_norm_backward"], |cx| backward(cx, cx.bool("update")?, "save_var")).bounded(),
    // Synchronized batch norm.
    many(&["batch_norm_stats"], |cx| {
        let x = Channels::of(cx, "input")?;
        let (mean, squares) = x.moments();
        let variance = squares / x.count();
        Ok(vec![mean, (variance + cx.scalar("eps", mean.dtype())?).rsqrt()])
    }),
    one(&["batch_norm_elemt"], |cx| {
        Ok(Channels::of(cx, "input")?.normalized(cx, cx.tensor("mean")?, cx.tensor("invstd")?))
    }),
    many(&["batch_norm_gather_stats", "batch_norm_gather_stats_with_counts"], gather_statistics)
        .writes(&["running_mean", "running_var"]),
    many(&["batch_norm_backward_reduce"], backward_reduce),
    one(&["batch_norm_backward_elemt"], backward_elementwise),
];

/// An input in the type of the computation, reshaped to [batch, channel, position], or to [batch, position, channel]
/// if channels are last in memory.
struct Channels<'b> {
    value: Value<'b>,
    dims: Vec<i64>,
    dtype: DType,
    channels_last: bool,
}

impl<'b> Channels<'b> {
    fn of(cx: &Cx<'b>, name: &str) -> Result<Channels<'b>> {
        let channels_last = match cx.arg(name) {
            Arg::Tensor(spec) => {
                let order = memory_order(&spec.sizes, &spec.strides);
                order.is_some_and(|order| order.len() > 2 && order.last() == Some(&1))
            }
            _ => false,
        };
        let x = cx.tensor(name)?;
        let x = Channels { value: x, dims: x.dims(), dtype: x.dtype(), channels_last };
        Ok(Channels { value: x.arranged(x.value), ..x })
    }

    /// Gives a value of the input's shape the shape of `value`.
    fn arranged(&self, value: Value<'b>) -> Value<'b> {
        let wide = value.convert(self.dtype.opmath());
        let at = |axis: usize| self.dims.get(axis).copied().unwrap_or(1);
        let (batch, channels, places) = (at(0), at(1), self.dims.iter().skip(2).product());
        match self.channels_last {
            true => wide.move_axis(1, self.dims.len() - 1).reshape(&[batch, places, channels]),
            false => wide.reshape(&[batch, channels, places]),
        }
    }

    /// The inverse of [`Channels::arranged`], in the input's type.
    fn restored(&self, value: Value<'b>) -> Value<'b> {
        let value = value.convert(self.dtype);
        if !self.channels_last {
            return value.reshape(&self.dims);
        }
        let mut dims = self.dims.clone();
        let channels = dims.remove(1);
        dims.push(channels);
        value.reshape(&dims).move_axis(self.dims.len() - 1, 1)
    }

    fn wide(&self) -> DType {
        self.value.dtype()
    }

    /// The number of elements of a channel.
    fn count(&self) -> Value<'b> {
        let axes = if self.channels_last { [0, 1] } else { [0, 2] };
        self.value.count(&axes, self.wide())
    }

    /// The sum over each channel: first over the batch, then over positions. The barrier keeps XLA from merging both
    /// sums, which is slow because the dimensions are not adjacent.
    fn sum(&self, value: Value<'b>) -> Value<'b> {
        let places = if self.channels_last { 0 } else { 1 };
        value.reduce_sum(&[0]).barrier().reduce_sum(&[places])
    }

    /// One value per channel, shaped to broadcast with `value`.
    fn spread(&self, per_channel: Value<'b>) -> Value<'b> {
        let wide = per_channel.convert(self.wide());
        // PyTorch counts the elements of a parameter, whichever dimensions they have.
        let wide = if wide.rank() == 1 { wide } else { wide.flatten() };
        if self.channels_last { wide } else { wide.unsqueeze(1) }
    }

    fn parameter(&self, cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
        Ok(self.spread(cx.tensor(name)?))
    }

    fn parameter_or_none(&self, cx: &Cx<'b>, name: &str) -> Option<Value<'b>> {
        cx.tensor_or_none(name).map(|value| self.spread(value))
    }

    /// The mean and the sum of squared distances from it, per channel. Uses two passes, because the sum of squares
    /// minus the square of the sum cancels.
    fn moments(&self) -> (Value<'b>, Value<'b>) {
        let mean = self.sum(self.value) / self.count();
        (mean, self.sum((self.value - self.spread(mean)).square()))
    }

    /// `(x - mean) · rstd · weight + bias` in the shape and type of the input.
    fn normalized(&self, cx: &Cx<'b>, mean: Value<'b>, rstd: Value<'b>) -> Value<'b> {
        let normalized = (self.value - self.spread(mean)) * self.spread(rstd);
        let (weight, bias) = (self.parameter_or_none(cx, "weight"), self.parameter_or_none(cx, "bias"));
        self.restored(affine(normalized, weight, bias))
    }
}

/// The results of a batch norm. The statistics are per channel.
struct BatchNorm<'b> {
    output: Value<'b>,
    mean: Value<'b>,
    rstd: Value<'b>,
    running: Vec<Value<'b>>,
}

impl<'b> BatchNorm<'b> {
    fn of(cx: &Cx<'b>, training: bool) -> Result<BatchNorm<'b>> {
        let x = Channels::of(cx, "input")?;
        check_parameters(cx, x.dtype, &["weight", "bias", "running_mean", "running_var"])?;
        for rank in ["running_mean", "running_var"].iter().filter_map(|name| Some(cx.tensor_or_none(name)?.rank())) {
            if rank != 1 {
                return Err(Error::runtime(format!("TensorAccessor expected 1 dims but tensor has {rank}")));
            }
        }
        let epsilon = cx.scalar("eps", x.wide())?;
        let (mean, variance, running) = if training {
            let (mean, squares) = x.moments();
            (mean, squares / x.count(), updated(cx, mean, squares / (x.count() - 1.0))?)
        } else {
            if cx.is_none("running_mean") || cx.is_none("running_var") {
                return Err(Error::runtime("running_mean and running_var must be defined in evaluation mode"));
            }
            let (mean, variance) = (cx.tensor("running_mean")?, cx.tensor("running_var")?);
            (mean.convert(x.wide()), variance.convert(x.wide()), vec![mean, variance])
        };
        let rstd = (variance + epsilon).rsqrt();
        let output = x.normalized(cx, mean, rstd);
        Ok(BatchNorm { output, mean, rstd, running })
    }

    fn results(&self) -> Vec<Value<'b>> {
        vec![self.output, self.mean, self.rstd]
    }

    fn running(&self) -> Vec<Value<'b>> {
        self.running.clone()
    }
}

/// The running statistics that are given, moved towards the batch's statistics by `momentum`.
fn updated<'b>(cx: &Cx<'b>, mean: Value<'b>, unbiased_variance: Value<'b>) -> Result<Vec<Value<'b>>> {
    let momentum = cx.scalar("momentum", mean.dtype())?;
    let mut running = Vec::new();
    for (name, now) in [("running_mean", mean), ("running_var", unbiased_variance)] {
        if let Some(old) = cx.tensor_or_none(name) {
            let moved = old.convert(now.dtype()) * (momentum.splat_like(1.0) - momentum) + now * momentum;
            running.push(moved.convert(old.dtype()));
        }
    }
    Ok(running)
}

/// cuDNN's workspace, which is empty on other devices.
fn reserve<'b>(cx: &Cx<'b>) -> Value<'b> {
    cx.b().splat(0, DType::U8, &[0])
}

fn backward<'b>(cx: &Cx<'b>, training: bool, saved_rstd: &str) -> Result<Vec<Value<'b>>> {
    let x = Channels::of(cx, "input")?;
    let grad = x.arranged(cx.tensor("grad_out")?);
    let (mean, rstd) = if training {
        (x.parameter(cx, "save_mean")?, x.parameter(cx, saved_rstd)?)
    } else {
        let variance = x.parameter(cx, "running_var")?;
        (x.parameter(cx, "running_mean")?, (variance + cx.scalar("eps", x.wide())?).rsqrt())
    };
    let normalized = (x.value - mean) * rstd;
    let (sum, product) = (x.sum(grad), x.sum(grad * normalized));
    let centered = match training {
        true => grad - x.spread(sum / x.count()) - normalized * x.spread(product / x.count()),
        false => grad,
    };
    let grad_input = centered * affine(rstd, x.parameter_or_none(cx, "weight"), None);
    let parameter = parameter_dtype(cx, "weight", x.dtype);
    let grad_input = x.restored(grad_input);
    let mut gradients = wanted(cx, &[grad_input, product.convert(parameter), sum.convert(parameter)])?;
    // PyTorch's meta kernel always has this gradient, also where the input needs none.
    gradients[0] = grad_input;
    Ok(gradients)
}

/// Combines the statistics of several devices: rows of `mean` and `invstd`, each over its own count of elements
/// (Chan, Golub and LeVeque's update).
fn gather_statistics<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let mean = cx.tensor("mean")?;
    let dtype = mean.dtype();
    let epsilon = cx.scalar("eps", dtype)?;
    let counts = match cx.tensor_or_none("counts") {
        Some(counts) => counts.convert(dtype).reshape(&[mean.dim(0), 1]),
        None => cx.scalar("count", dtype)?.broadcast_to(&[mean.dim(0), 1]),
    };
    let total = counts.reduce_sum(&[0, 1]);
    let joint = (mean * counts).reduce_sum(&[0]) / total;
    let rstd = cx.tensor("invstd")?;
    let variance = rstd.splat_like(1.0) / rstd.square() - epsilon;
    let squares = ((variance + (mean - joint).square()) * counts).reduce_sum(&[0]);
    let running = updated(cx, joint, squares / (total - 1.0))?;
    Ok([running, vec![joint, (squares / total + epsilon).rsqrt()]].concat())
}

fn backward_reduce<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let x = Channels::of(cx, "input")?;
    let grad = x.arranged(cx.tensor("grad_out")?);
    let (sum, product) = (x.sum(grad), x.sum(grad * (x.value - x.parameter(cx, "mean")?)));
    let parameter = parameter_dtype(cx, "weight", x.wide());
    let empty = cx.b().splat(0, parameter, &[0]);
    let grad_weight = affine(product, wide_or_none(cx, "invstd", x.wide()), None).convert(parameter);
    Ok(vec![
        sum,
        product,
        if cx.bool("weight_g")? { grad_weight } else { empty },
        if cx.bool("bias_g")? { sum.convert(parameter) } else { empty },
    ])
}

fn backward_elementwise<'b>(cx: &Cx<'b>) -> Result<Value<'b>> {
    let x = Channels::of(cx, "input")?;
    let grad = x.arranged(cx.tensor("grad_out")?);
    // The element counts of the devices.
    let count = cx.tensor("count")?.convert(x.wide()).flatten().reduce_sum(&[0]);
    let rstd = x.parameter(cx, "invstd")?;
    let level = x.parameter(cx, "sum_dy")? / count;
    let slope = x.parameter(cx, "sum_dy_xmu")? / count * rstd.square();
    let centered = grad - level - (x.value - x.parameter(cx, "mean")?) * slope;
    Ok(x.restored(centered * affine(rstd, x.parameter_or_none(cx, "weight"), None)))
}
