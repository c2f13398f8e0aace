//! Convolutions and their gradients.
//!
//! Let n = batch, i = input channel, o = output channel, x = input position, y = output position, k = position in the
//! kernel (of weight [o, i, k]), with x = y · stride + k · dilation - padding. Each gradient is a convolution too
//! (Dumoulin and Visin, "A guide to convolution arithmetic for deep learning", 2016):
//!
//! ```text
//! forward:       [n, i, x] [o, i, k] -> [n, o, y]   sum over i, k; window stride = stride, kernel dilation = dilation
//! input grad:    [n, o, y] [o, i, k] -> [n, i, x]   sum over o, k; y dilated by stride, k reversed
//! weight grad:   [n, i, x] [n, o, y] -> [o, i, k]   sum over n, y; window stride = dilation, y dilated by stride
//! ```
//!
//! A transposed convolution is the input gradient. The forms below are those that XLA compiles to fast code on every
//! platform. `reverse` mirrors a kernel, because a mirrored window is not on the CPU's fast path. Depthwise
//! convolutions are sums of shifted products. Groups are joined to dense convolutions, because the native group
//! counts are slow everywhere.

use stablehlo::{Convolution, DType, DTypes, Number, Value};

use crate::common::parameters::wanted;
use crate::common::windows::Windows;
use crate::cx::Cx;
use crate::error::{Error, Result, cannot_be_cast};
use crate::promote::can_cast;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    one(&["convolution", "convolution_overrideable"], |cx| {
        let (input, weight) = (cx.tensor("input")?, cx.tensor("weight")?);
        let x = zero_filled(input);
        check_sizes(cx, x, weight)?;
        // PyTorch gives an input without channels a result without channels.
        if let (Some(0), Some(spec)) = (x.dims().get(1), cx.result(0)) {
            return Ok(cx.b().splat(0, x.dtype(), &spec.sizes));
        }
        let geometry = Geometry::of(cx, spatial(x).len())?;
        geometry.refuse_padded_groups(&[x], weight);
        let y = if cx.bool("transposed")? {
            let sizes = geometry.transposed_sizes(cx, x, weight)?;
            geometry.input_gradient(x, weight, &sizes)
        } else {
            geometry.correlate(x, weight, &geometry.output_sizes(x, weight))
        };
        let y = match cx.tensor_or_none("bias") {
            Some(bias) => {
                let mut dims = vec![1; y.rank()];
                dims[1] = bias.numel();
                y + bias.convert(y.dtype()).reshape(&dims)
            }
            None => y,
        };
        Ok(cx.resized_like(0, y, input))
    })
    .one_dtype(&["input", "weight"])
    .takes(&["input"], DTypes::NUMBERS)
    .bounded(),
    many(&["convolution_backward", "convolution_backward_overrideable"], gradients).bounded(),
];

/// PyTorch's meta kernel checks all sizes but these.
fn check_sizes(cx: &Cx<'_>, x: Value<'_>, weight: Value<'_>) -> Result<()> {
    if spatial(x).contains(&0) {
        let sizes = x.dims();
        return Err(Error::runtime(format!(
            "Only zero batch or zero channel inputs are supported, but got input shape: {sizes:?}"
        )));
    }
    let (groups, sizes) = (cx.int("groups")?, weight.dims());
    check_kernel(cx, x, &sizes)?;
    if cx.bool("transposed")? {
        let (channels, expected, given) = (x.dim(1), sizes[0], x.dims());
        return match cx.tensor_or_none("bias") {
            _ if channels != expected => Err(Error::runtime(format!(
                "Given transposed=1, weight of size {sizes:?}, expected input{given:?} to have {expected} channels, but \
                 got {channels} channels instead"
            ))),
            Some(bias) if !can_cast(bias.dtype(), x.dtype()) => Err(cannot_be_cast(bias.dtype(), x.dtype())),
            _ => Ok(()),
        };
    }
    if sizes[0] < groups {
        return Err(Error::runtime(format!(
            "Given groups={groups}, expected weight to be at least {groups} at dimension 0, but got weight of size {sizes:?} \
             instead"
        )));
    }
    match cx.tensor_or_none("bias").map(|bias| bias.dims()) {
        Some(bias) if bias != [sizes[0]] => Err(Error::runtime(format!(
            "Given weight of size {sizes:?}, expected bias to be 1-dimensional with {} elements, but got bias of size \
             {bias:?} instead",
            sizes[0]
        ))),
        _ => Ok(()),
    }
}

/// The kernel has the dimensions of the input, and elements along each.
fn check_kernel(cx: &Cx<'_>, x: Value<'_>, sizes: &[i64]) -> Result<()> {
    let (dims, rank, strides) = (x.dims(), x.rank(), cx.ints("stride")?);
    let spatial = sizes.len().saturating_sub(2);
    let message = match sizes[2..] {
        _ if sizes.len() != rank && ![1, spatial].contains(&strides.len()) => format!(
            "expected stride to be a single integer value or a list of {spatial} values to match the convolution \
             dimensions, but got stride={strides:?}"
        ),
        _ if sizes.len() != rank => format!(
            "Expected {0}-dimensional input for {0}-dimensional weight {sizes:?}, but got {rank}-dimensional input of \
             size {dims:?} instead",
            sizes.len()
        ),
        [0] => "kernel size should be greater than zero, but got kernel_height: 1 kernel_width: 0".into(),
        [height, width] if height * width == 0 => {
            format!("kernel size should be greater than zero, but got kernel_height: {height} kernel_width: {width}")
        }
        [depth, height, width] if depth * height * width == 0 => {
            format!("kernel size should be greater than zero, but got: {depth} x {height} x {width} (TxHxW)")
        }
        _ => return Ok(()),
    };
    Err(Error::runtime(message))
}

fn gradients<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let (grad, x) = (zero_filled(cx.tensor("grad_output")?), zero_filled(cx.tensor("input")?));
    let weight = cx.tensor("weight")?;
    if x.dims().get(1) == Some(&0) {
        let zeros = |dims: &[i64]| cx.b().splat(0, grad.dtype(), dims);
        let bias = if cx.bool("transposed")? { weight.dim(1) } else { weight.dim(0) };
        return wanted(cx, &[zeros(&x.dims()), zeros(&weight.dims()), zeros(&[bias])]);
    }
    let geometry = Geometry::of(cx, spatial(x).len())?;
    geometry.refuse_padded_groups(&[x, grad], weight);
    // Sums over the last dimension first: one long sum would accumulate more rounding errors.
    let axes: Vec<usize> = (0..grad.rank() - 1).filter(|&axis| axis != 1).collect();
    let of_bias = grad.convert(grad.dtype().opmath()).reduce_sum(&[grad.rank() - 1]).barrier().reduce_sum(&axes);
    let (of_input, of_weight) = if cx.bool("transposed")? {
        (geometry.correlate(grad, weight, &spatial(x)), geometry.weight_gradient(grad, x, &spatial(weight)))
    } else {
        (geometry.input_gradient(grad, weight, &spatial(x)), geometry.weight_gradient(x, grad, &spatial(weight)))
    };
    wanted(cx, &[of_input, of_weight, of_bias.convert(grad.dtype())])
}

/// The largest number of channels of several groups that are joined to one dense convolution: the width of a matrix
/// unit. Up to this width the products with zeros cost nothing.
const DENSE_CHANNELS: i64 = 128;

/// Fills the padding of bounded dimensions with zeros, like the convolution's own padding.
fn zero_filled(x: Value<'_>) -> Value<'_> {
    x.zero_filled(2..x.rank(), "a convolution along merged dimensions")
}

/// The sizes of the spatial dimensions.
fn spatial(x: Value<'_>) -> Vec<i64> {
    x.dims().split_off(2.min(x.rank()))
}

/// The window parameters of a convolution. Every list has one element for each spatial dimension.
struct Geometry {
    strides: Vec<i64>,
    padding: Vec<i64>,
    dilation: Vec<i64>,
    groups: i64,
}

impl Geometry {
    fn of(cx: &Cx<'_>, spatial: usize) -> Result<Geometry> {
        let list = |name: &str| -> Result<Vec<i64>> {
            let items = cx.ints(name)?;
            Ok(if items.len() == 1 { vec![items[0]; spatial] } else { items })
        };
        let geometry = Geometry {
            strides: list("stride")?,
            padding: list("padding")?,
            dilation: list("dilation")?,
            groups: cx.int("groups")?,
        };
        let least = [
            (&geometry.strides, 1, "non-positive stride is not supported"),
            (&geometry.padding, 0, "negative padding is not supported"),
            (&cx.ints("output_padding")?, 0, "negative output_padding is not supported"),
            (&geometry.dilation, 1, "dilation should be greater than zero"),
            (&vec![geometry.groups], 1, "non-positive groups is not supported"),
        ];
        if let Some((.., refusal)) = least.iter().find(|(given, least, _)| given.iter().any(|number| number < least)) {
            return Err(Error::runtime(*refusal));
        }
        Ok(geometry)
    }

    fn spatial(&self) -> usize {
        self.strides.len()
    }

    /// The distance from the first element of a dilated kernel of `size` elements to its last.
    fn reach(&self, i: usize, size: i64) -> i64 {
        self.dilation[i] * (size - 1)
    }

    fn output_sizes(&self, x: Value<'_>, weight: Value<'_>) -> Vec<i64> {
        (0..self.spatial())
            .map(|i| (x.dim(i + 2) + 2 * self.padding[i] - self.reach(i, weight.dim(i + 2)) - 1) / self.strides[i] + 1)
            .collect()
    }

    fn transposed_sizes(&self, cx: &Cx<'_>, x: Value<'_>, weight: Value<'_>) -> Result<Vec<i64>> {
        let extra = cx.ints("output_padding")?;
        let size = |i: usize| {
            (x.dim(i + 2) - 1) * self.strides[i] - 2 * self.padding[i]
                + self.reach(i, weight.dim(i + 2))
                + 1
                + extra.get(i).or(extra.first()).copied().unwrap_or(0)
        };
        let sizes: Vec<i64> = (0..self.spatial()).map(size).collect();
        if sizes.iter().any(|&size| size < 1) {
            let message = format!("Calculated output size per channel: {sizes:?}. Output size is too small");
            return Err(Error::runtime(message));
        }
        Ok(sizes)
    }

    /// The forward convolution (a cross-correlation). `sizes` are the spatial sizes of the output; `weight` is
    /// [output channels, input channels / groups, ...].
    fn correlate<'b>(&self, x: Value<'b>, weight: Value<'b>, sizes: &[i64]) -> Value<'b> {
        let (inputs, kernel) = (spatial(x), spatial(weight));
        if let Some(windows) = self.depthwise(x.dim(1), &kernel, &inputs, sizes) {
            let dtype = x.dtype();
            let repeated = repeat_channels(x.convert(dtype.opmath()), weight.dim(0));
            let extended = windows.extend(repeated, Number::Int(0));
            let sum = sum_of_taps(&windows, weight.convert(dtype.opmath()), |tap| windows.inputs_at_tap(extended, tap));
            return sum.convert(dtype);
        }
        self.by_dense_groups(x, weight, |x, weight| {
            let mut c = Convolution::standard(self.spatial());
            c.strides = self.strides.clone();
            c.rhs_dilation = self.dilation.clone();
            c.padding = self.padding_for(&inputs, &kernel, sizes);
            x.convolution(weight, &c)
        })
    }

    /// The padding with which the output has `sizes`.
    fn padding_for(&self, inputs: &[i64], kernel: &[i64], sizes: &[i64]) -> Vec<(i64, i64)> {
        (0..self.spatial())
            .map(|i| {
                let covered = (sizes[i] - 1) * self.strides[i] + self.reach(i, kernel[i]) + 1;
                (self.padding[i], covered - inputs[i] - self.padding[i])
            })
            .collect()
    }

    /// The gradient of an input with spatial sizes `sizes`: the adjoint of [`Geometry::correlate`] in its input, and
    /// the transposed convolution.
    fn input_gradient<'b>(&self, grad: Value<'b>, weight: Value<'b>, sizes: &[i64]) -> Value<'b> {
        let (kernel, outputs) = (spatial(weight), spatial(grad));
        if let Some(windows) = self.depthwise(grad.dim(1), &kernel, sizes, &outputs).filter(|_| weight.dim(1) == 1) {
            let dtype = grad.dtype();
            let spread = windows.dilate(grad.convert(dtype.opmath()), Number::Int(0));
            let sum = sum_of_taps(&windows, weight.convert(dtype.opmath()), |tap| windows.outputs_at_tap(spread, tap));
            return sum.convert(dtype);
        }
        let axes: Vec<usize> = (2..weight.rank()).collect();
        let padding: Vec<(i64, i64)> = (0..self.spatial())
            .map(|i| {
                let reach = self.reach(i, kernel[i]);
                let low = reach - self.padding[i];
                (low, sizes[i] + reach - ((outputs[i] - 1) * self.strides[i] + 1) - low)
            })
            .collect();
        self.by_dense_groups(grad, weight.reverse(&axes), |grad, weight| {
            let mut c = Convolution::standard(self.spatial());
            c.kernel.swap(0, 1);
            c.lhs_dilation = self.strides.clone();
            c.rhs_dilation = self.dilation.clone();
            c.padding = padding.clone();
            grad.convolution(weight, &c)
        })
    }

    /// The gradient of a kernel with spatial sizes `sizes`: convolves the input with the output's gradient and sums
    /// over the batch.
    fn weight_gradient<'b>(&self, x: Value<'b>, grad: Value<'b>, sizes: &[i64]) -> Value<'b> {
        let (inputs, outputs) = (spatial(x), spatial(grad));
        if let Some(windows) = self.depthwise(x.dim(1), sizes, &inputs, &outputs) {
            let dtype = x.dtype();
            let repeated = repeat_channels(x.convert(dtype.opmath()), grad.dim(1));
            let extended = windows.extend(repeated, Number::Int(0));
            let axes: Vec<usize> = (0..grad.rank()).filter(|&axis| axis != 1).collect();
            let wide = grad.convert(dtype.opmath());
            let sum = |tap: Vec<i64>| (windows.inputs_at_tap(extended, &tap) * wide).reduce_sum(&axes).unsqueeze(1);
            let sums: Vec<Value<'b>> = windows.taps().into_iter().map(sum).collect();
            let dims = [&[grad.dim(1), 1], sizes].concat();
            return x.builder().concatenate(&sums, 1).convert(dtype).reshape(&dims);
        }
        let dense = |x: Value<'b>, grad: Value<'b>| {
            let mut c = Convolution::standard(self.spatial());
            c.input.swap(0, 1);
            c.kernel.swap(0, 1);
            c.output.swap(0, 1);
            c.strides = self.dilation.clone();
            c.rhs_dilation = self.strides.clone();
            c.padding = self.padding_for(&inputs, sizes, &outputs);
            x.convolution(grad, &c)
        };
        let (ins, outs) = (x.dim(1) / self.groups, grad.dim(1) / self.groups);
        let gathered = self.gathered_groups(ins, outs);
        let parts: Vec<Value<'b>> = (0..self.groups / gathered)
            .map(|part| {
                let channels =
                    |v: Value<'b>, count: i64| v.slice_axis(1, part * gathered * count, (part + 1) * gathered * count);
                diagonal_blocks(dense(channels(x, ins), channels(grad, outs)), gathered)
            })
            .collect();
        x.builder().concatenate(&parts, 0)
    }

    // ---- groups ----------------------------------------------------------------------------------

    /// The channels of a group are a part of all, which padding would move.
    fn refuse_padded_groups(&self, values: &[Value<'_>], weight: Value<'_>) {
        let is_padded = weight.is_bounded_along(&[0, 1]) || values.iter().any(|value| value.is_bounded_along(&[1]));
        if self.groups > 1 && is_padded {
            weight.builder().refuse_bounded("channels of several groups");
        }
    }

    /// How many groups, each with `inputs` and `outputs` channels, are joined to one dense convolution.
    fn gathered_groups(&self, inputs: i64, outputs: i64) -> i64 {
        let most = (DENSE_CHANNELS / inputs.max(outputs).max(1)).max(1);
        (1..=most.min(self.groups)).rev().find(|count| self.groups % count == 0).unwrap_or(1)
    }

    /// Applies a dense convolution to joined groups.
    fn by_dense_groups<'b>(
        &self,
        x: Value<'b>,
        weight: Value<'b>,
        convolve: impl Fn(Value<'b>, Value<'b>) -> Value<'b>,
    ) -> Value<'b> {
        if self.groups == 1 {
            return convolve(x, weight);
        }
        let outputs = weight.dim(0) / self.groups;
        let gathered = self.gathered_groups(weight.dim(1), outputs);
        let channels = x.dim(1) / self.groups * gathered;
        let parts: Vec<Value<'b>> = (0..self.groups / gathered)
            .map(|part| {
                let x = x.slice_axis(1, part * channels, (part + 1) * channels);
                let weight = weight.slice_axis(0, part * gathered * outputs, (part + 1) * gathered * outputs);
                convolve(x, block_diagonal(weight, gathered))
            })
            .collect();
        x.builder().concatenate(&parts, 1)
    }

    // ---- depthwise -------------------------------------------------------------------------------

    /// The windows of a depthwise convolution: each of `channels` has its own kernel, which is small enough to be
    /// written as slices.
    fn depthwise(&self, channels: i64, kernel: &[i64], inputs: &[i64], outputs: &[i64]) -> Option<Windows> {
        let windows = Windows {
            kernel: kernel.to_vec(),
            strides: self.strides.clone(),
            padding: self.padding.clone(),
            dilation: self.dilation.clone(),
            inputs: inputs.to_vec(),
            outputs: outputs.to_vec(),
        };
        (self.groups > 1 && self.groups == channels && windows.is_small()).then_some(windows)
    }
}

/// The sum over taps of `at_tap(tap)` times the weight of the tap, per channel.
fn sum_of_taps<'b>(windows: &Windows, weight: Value<'b>, at_tap: impl Fn(&[i64]) -> Value<'b>) -> Value<'b> {
    let channels = weight.dim(0);
    let mut column = vec![1; weight.rank()];
    column[1] = channels;
    let product = |tap: Vec<i64>| {
        let starts = [&[0, 0], tap.as_slice()].concat();
        let limits: Vec<i64> = [channels, 1].into_iter().chain(tap.iter().map(|t| t + 1)).collect();
        at_tap(&tap) * weight.slice(&starts, &limits, &vec![1; limits.len()]).reshape(&column)
    };
    windows.taps().into_iter().map(product).reduce(|sum, product| sum + product).unwrap_or(weight)
}

/// Repeats each channel (dimension 1) so that there are `channels`.
fn repeat_channels<'b>(x: Value<'b>, channels: i64) -> Value<'b> {
    let mut dims = x.dims();
    let places: Vec<usize> = [0, 1].into_iter().chain(3..dims.len() + 1).collect();
    let mut repeated = dims.clone();
    repeated.insert(2, channels / dims[1].max(1));
    dims[1] = channels;
    x.broadcast_in_dim(&repeated, &places).reshape(&dims)
}

/// The kernel of a dense convolution that is equivalent to `groups` groups: zero between different groups.
fn block_diagonal<'b>(weight: Value<'b>, groups: i64) -> Value<'b> {
    if groups == 1 {
        return weight;
    }
    let dims = weight.dims();
    let blocks: Vec<i64> = [groups, dims[0] / groups, groups, dims[1]].into_iter().chain(dims[2..].to_vec()).collect();
    let grouped: Vec<i64> = [groups, dims[0] / groups, dims[1]].into_iter().chain(dims[2..].to_vec()).collect();
    let places: Vec<usize> = [0, 1].into_iter().chain(3..blocks.len()).collect();
    let repeated = weight.reshape(&grouped).broadcast_in_dim(&blocks, &places);
    let dense: Vec<i64> = [dims[0], dims[1] * groups].into_iter().chain(dims[2..].to_vec()).collect();
    same_group(weight, &blocks).select(repeated, 0).reshape(&dense)
}

/// The blocks of a dense kernel's gradient that belong to groups: the adjoint of [`block_diagonal`].
fn diagonal_blocks<'b>(dense: Value<'b>, groups: i64) -> Value<'b> {
    if groups == 1 {
        return dense;
    }
    let dims = dense.dims();
    let blocks: Vec<i64> =
        [groups, dims[0] / groups, groups, dims[1] / groups].into_iter().chain(dims[2..].to_vec()).collect();
    let kept: Vec<i64> = [dims[0], dims[1] / groups].into_iter().chain(dims[2..].to_vec()).collect();
    same_group(dense, &blocks).select(dense.reshape(&blocks), 0).reduce_sum(&[2]).reshape(&kept)
}

fn same_group<'b>(weight: Value<'b>, blocks: &[i64]) -> Value<'b> {
    let group = |axis: usize| weight.builder().iota(DType::I32, blocks, axis);
    group(0).eq(group(2))
}
