//! Adaptive pooling: the number of windows is given. Their sizes follow from it and may differ by one.

use stablehlo::{DType, DTypes, Extent, Value};

use crate::common::filters::along_last_axes;
use crate::common::pooling::{
    at_capacities, bounded_self, fill_padding, input_positions, larger, largest, scattered, sum_of_outputs,
    sum_of_windows, unpooled, valid_positions,
};
use crate::common::windows::{Windows, check_not_empty};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::row::{Row, many, one};
use crate::spec::Dim;

pub(crate) const ROWS: &[Row] = &[
    one(&["_adaptive_avg_pool2d"], |cx| average(cx, 2)).takes(&["self"], DTypes::FLOATS).bounded(),
    one(&["_adaptive_avg_pool3d"], |cx| average(cx, 3)).takes(&["self"], DTypes::FLOATS).bounded(),
    one(&["_adaptive_avg_pool2d_backward"], |cx| average_backward(cx, 2)).bounded(),
    one(&["_adaptive_avg_pool3d_backward"], |cx| average_backward(cx, 3)).bounded(),
    many(&["adaptive_max_pool2d"], |cx| max(cx, 2)).takes(&["self"], DTypes::FLOATS).bounded(),
    many(&["adaptive_max_pool3d"], |cx| max(cx, 3)).takes(&["self"], DTypes::FLOATS).bounded(),
    one(&["adaptive_max_pool2d_backward"], |cx| max_backward(cx, 2)).bounded(),
    one(&["adaptive_max_pool3d_backward"], |cx| max_backward(cx, 3)).bounded(),
];

/// The windows of one dimension: output `o` covers the inputs from `⌊o · inputs / outputs⌋` up to but not including
/// `⌈(o + 1) · inputs / outputs⌉`.
#[derive(Clone, Copy)]
struct Bins<'b> {
    inputs: i64,
    outputs: i64,
    /// The number of outputs, 0-d and int64, if it changes.
    number: Option<Value<'b>>,
}

impl<'b> Bins<'b> {
    fn of(inputs: &[i64], outputs: &[i64], spatial: usize) -> Result<Vec<Bins<'b>>> {
        if inputs.len() < spatial || outputs.len() < spatial {
            return Err(Error::runtime(format!("adaptive pooling of {inputs:?} to {outputs:?}")));
        }
        let last = |dims: &[i64]| dims[dims.len() - spatial..].to_vec();
        let sizes = last(inputs).into_iter().zip(last(outputs));
        Ok(sizes.map(|(inputs, outputs)| Bins { inputs, outputs, number: None }).collect())
    }

    fn is_even(&self) -> bool {
        self.outputs > 0 && self.inputs % self.outputs == 0
    }

    /// The length of the longest window.
    fn widest(&self) -> i64 {
        if self.outputs == 0 {
            return 0;
        }
        // Window `i` starts at the whole part of `i · inputs / outputs`. The fractions of these quotients are the multiples
        // of `step / outputs`.
        let (whole, rest) = (self.inputs / self.outputs, self.inputs % self.outputs);
        let step = greatest_common_divisor(self.inputs, self.outputs);
        match rest {
            0 => whole,
            _ if rest == step => whole + 1,
            _ => whole + 2,
        }
    }

    /// The most that [`Bins::widest`] can be for any number of inputs up to this.
    fn widest_of_fewer(&self) -> i64 {
        let outputs = self.outputs.max(1);
        self.inputs.min((self.inputs + outputs - 1) / outputs + 1)
    }

    /// Start and end of each output's window, from the valid length of the input (0-d, int64).
    fn bounds(&self, output: Value<'b>, inputs: Value<'b>) -> (Value<'b>, Value<'b>) {
        let (wide, inputs) = (output.convert(DType::I64), inputs.broadcast_to(&output.dims()));
        let outputs = self.number.map_or(wide.splat_like(self.outputs), |number| number.broadcast_to(&output.dims()));
        let start = wide * inputs / outputs;
        let end = ((wide + 1) * inputs + (outputs - 1)) / outputs;
        (start.convert(DType::I32), end.convert(DType::I32))
    }

    /// [outputs, inputs]: the weight of each input in each output's mean. `size` is the valid length of the input.
    fn weights(&self, like: Value<'b>, size: Value<'b>) -> Value<'b> {
        let b = like.builder();
        let (start, end) = self.bounds(b.iota(DType::I32, &[self.outputs, 1], 0), size);
        let input = b.iota(DType::I32, &[1, self.inputs], 1);
        let weight = b.scalar(1, like.dtype()) / (end - start).convert(like.dtype());
        (input.ge(start) & input.lt(end)).select(weight, 0)
    }
}

fn greatest_common_divisor(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}

/// Bins of equal size are ordinary windows.
fn even_windows(bins: &[Bins<'_>]) -> Option<Windows> {
    let sizes: Vec<i64> = bins.iter().filter(|bins| bins.is_even()).map(|bins| bins.inputs / bins.outputs).collect();
    (sizes.len() == bins.len()).then(|| Windows {
        strides: sizes.clone(),
        padding: vec![0; sizes.len()],
        dilation: vec![1; sizes.len()],
        inputs: bins.iter().map(|bins| bins.inputs).collect(),
        outputs: bins.iter().map(|bins| bins.outputs).collect(),
        kernel: sizes,
    })
}

// ---- mean ------------------------------------------------------------------------------------

fn average<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let expected =
        format!("adaptive_avg_pool{spatial}d(): Expected input to have non-zero size for non-batch dimensions");
    check_not_empty(x, x.rank().saturating_sub(spatial), &expected)?;
    let (bins, extents) = given_bins(cx, x, spatial)?;
    let is_known = !is_bounded(x, spatial) && bins.iter().all(|bins| bins.number.is_none());
    let wide = x.convert(x.dtype().opmath());
    let mean = match even_windows(&bins).filter(|_| is_known) {
        Some(windows) => sum_of_windows(wide, &windows) / windows.kernel.iter().product::<i64>(),
        None => along_last_axes(fill_padding(wide, spatial, 0), &weights(wide, &bins, Some(x)), 1),
    };
    Ok(mean.convert(x.dtype()).with_extents(extents))
}

/// The windows that `output_size` gives, and the extents of the result.
fn given_bins<'b>(cx: &Cx<'b>, x: Value<'b>, spatial: usize) -> Result<(Vec<Bins<'b>>, Vec<Extent>)> {
    require_prefixes(x, spatial);
    let sizes = cx.dims("output_size")?;
    let mut bins = Bins::of(&x.dims(), &Dim::capacities(&sizes), spatial)?;
    for (bins, size) in bins.iter_mut().zip(&sizes).filter(|(_, size)| !size.sizes.is_empty()) {
        bins.number = Some(cx.size_of(size));
    }
    let extents: Vec<Extent> = sizes.iter().map(|size| size.extent(|number| cx.b().capacity(number))).collect();
    Ok((bins, [&x.extents()[..x.rank() - spatial], &extents].concat()))
}

/// Refuses padding between the valid elements of a pooled dimension.
fn require_prefixes(x: Value<'_>, spatial: usize) {
    (x.rank() - spatial..x.rank()).for_each(|axis| x.require_prefix(axis, "adaptive pooling of merged dimensions"));
}

fn is_bounded(x: Value<'_>, spatial: usize) -> bool {
    (x.rank() - spatial..x.rank()).any(|axis| x.is_bounded_along(&[axis]))
}

/// The weights of each dimension. `x` is the input if its sizes are bounded.
fn weights<'b>(like: Value<'b>, bins: &[Bins<'b>], x: Option<Value<'b>>) -> Vec<Value<'b>> {
    let size = |i: usize| match x {
        Some(x) => x.size(x.rank() - bins.len() + i, DType::I64),
        None => like.builder().scalar(bins[i].inputs, DType::I64),
    };
    bins.iter().enumerate().map(|(i, bins)| bins.weights(like, size(i))).collect()
}

fn average_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let grad = cx.tensor("grad_output")?;
    require_prefixes(grad, spatial);
    let mut bins = Bins::of(&cx.ty("self")?.dims, &grad.dims(), spatial)?;
    let first = grad.rank() - spatial;
    for (i, bins) in bins.iter_mut().enumerate().filter(|(i, _)| grad.is_bounded_along(&[first + i])) {
        bins.number = Some(grad.size(first + i, DType::I64));
    }
    let is_known = !is_bounded(grad, spatial);
    let wide = fill_padding(grad, spatial, 0).convert(grad.dtype().opmath());
    let x = bounded_self(cx)?.filter(|&x| is_bounded(x, spatial));
    x.iter().for_each(|&x| require_prefixes(x, spatial));
    let spread = match even_windows(&bins).filter(|_| x.is_none() && is_known) {
        Some(windows) => sum_of_outputs(wide / windows.kernel.iter().product::<i64>(), &windows),
        None => along_last_axes(wide, &weights(wide, &bins, x), 0),
    };
    Ok(spread.convert(grad.dtype()))
}

// ---- maximum ---------------------------------------------------------------------------------

fn max<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let (bins, extents) = given_bins(cx, x, spatial)?;
    let (value, index) = match even_windows(&bins).filter(|_| are_known(x, &bins)) {
        Some(windows) => {
            let filled = fill_padding(x, spatial, x.dtype().max_identity());
            largest(filled, &windows, valid_positions(x, spatial))
        }
        None if bins.iter().any(|bins| bins.number.is_some()) => {
            let (value, index) = largest_in_steps(x, &bins);
            (value.with_extents(extents.clone()), index.with_extents(extents))
        }
        None => largest_of_bins(x, &bins),
    };
    Ok(vec![value, index.convert(DType::I64)])
}

/// Whether the windows do not depend on sizes that change: one window is the whole dimension.
fn are_known(x: Value<'_>, bins: &[Bins<'_>]) -> bool {
    let leading = x.rank() - bins.len();
    (0..bins.len()).all(|i| bins[i].number.is_none() && (bins[i].outputs == 1 || !x.is_bounded_along(&[leading + i])))
}

fn largest_of_bins<'b>(x: Value<'b>, bins: &[Bins<'b>]) -> (Value<'b>, Value<'b>) {
    let b = x.builder();
    let (spatial, leading) = (bins.len(), x.rank() - bins.len());
    let (mut value, mut place) = (x, valid_positions(x, spatial));
    let mut inside: Option<Value<'b>> = None;
    for (i, bins) in bins.iter().enumerate() {
        // Splits dimension 2i into two: the output, and the element in its window.
        let axis = leading + i;
        let widest = if x.is_bounded_along(&[axis]) { bins.widest_of_fewer() } else { bins.widest() };
        let mut dims = vec![1; 2 * spatial];
        (dims[2 * i], dims[2 * i + 1]) = (bins.outputs, widest);
        let inputs = x.size(axis, DType::I64);
        let (start, end) = bins.bounds(b.iota(DType::I32, &dims, 2 * i), inputs);
        let input = start + b.iota(DType::I32, &dims, 2 * i + 1);
        let within = input.lt(end);
        inside = Some(inside.map_or(within, |inside| inside & within));
        let taken = input.min(inputs.convert(DType::I32) - 1).reshape(&[bins.outputs, widest]);
        let spread = |v: Value<'b>, axis: usize| Places::slices(&v.dims(), axis, taken).read(v);
        value = spread(value, leading + 2 * i);
        place = spread(place, 2 * i);
    }
    let lowest = x.dtype().max_identity();
    if let Some(inside) = inside {
        value = inside.select(value, lowest);
        place = inside.select(place, i64::from(i32::MAX));
    }
    let initial = [b.scalar(lowest, x.dtype()), b.scalar(i32::MAX, DType::I32)];
    let axes: Vec<usize> = (0..bins.len()).map(|i| leading + 2 * i + 1).collect();
    let operands = [value, place.broadcast_to(&value.dims())];
    let results = b.reduce(&operands, &initial, &axes, |a, b| larger((a[0], a[1]), (b[0], b[1])));
    (results[0], results[1])
}

/// [`largest_of_bins`] where the number of windows changes. How wide the widest is only the program knows: it takes one more
/// element of each window in each step.
fn largest_in_steps<'b>(x: Value<'b>, bins: &[Bins<'b>]) -> (Value<'b>, Value<'b>) {
    let (b, leading) = (x.builder(), x.rank() - bins.len());
    let place = valid_positions(x, bins.len()).broadcast_to(&x.dims());
    let sizes: Vec<Value<'b>> = (leading..x.rank()).map(|axis| x.size(axis, DType::I64)).collect();
    bins.iter().enumerate().fold((x.without_extents(), place), |(value, place), (i, bins)| {
        let (start, end) = bins.bounds(b.iota(DType::I32, &[bins.outputs], 0), sizes[i]);
        // Windows behind the valid ones lie behind the input.
        let (start, end) = (start.min(bins.inputs as i32 - 1), end.min(bins.inputs as i32));
        let end = end.max(start + 1);
        let taken = |value: Value<'b>, at: Value<'b>| Places::slices(&value.dims(), leading + i, at).read(value);
        let state = [b.scalar(1, DType::I32), start, end, value, place, taken(value, start), taken(place, start)];
        let widest = |state: &[Value<'b>]| (state[2] - state[1]).reduce_max(&[0]);
        let last = b.while_loop(
            &state,
            |state| state[0].lt(widest(state)),
            |state| {
                let at = (state[1] + state[0].broadcast_to(&state[1].dims())).min(state[2] - 1);
                let other = (taken(state[3], at), taken(state[4], at));
                let best = larger((state[5], state[6]), other);
                vec![state[0] + 1, state[1], state[2], state[3], state[4], best[0], best[1]]
            },
        );
        (last[5], last[6])
    })
}

fn max_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let (grad, index) = (cx.tensor("grad_output")?, cx.tensor("indices")?);
    let is_known = !is_bounded(grad, spatial) && !is_bounded(index, spatial);
    let (grad, index) = (fill_padding(grad, spatial, 0), fill_padding(index, spatial, -1));
    let bins = Bins::of(&cx.ty("self")?.dims, &grad.dims(), spatial)?;
    let x = bounded_self(cx)?;
    [grad, index].into_iter().chain(x).for_each(|value| require_prefixes(value, spatial));
    if let Some(windows) = even_windows(&bins).filter(|_| is_known && x.is_none_or(|x| are_known(x, &bins))) {
        return Ok(unpooled(grad, index, &windows, input_positions(cx, &windows, x)));
    }
    let sizes: Vec<i64> = bins.iter().map(|bins| bins.inputs).collect();
    let wide = grad.convert(grad.dtype().opmath());
    let index = index.convert(DType::I32);
    let index = x.map_or(index, |x| at_capacities(index, x, spatial));
    let spread = scattered(wide, index, &sizes).convert(grad.dtype());
    Ok(x.map_or(spread, |x| spread.bounded_like(x)))
}
