//! Windows over the trailing dimensions of a tensor, written as one shifted slice for each window element ("tap").
//! XLA fuses such a sum or maximum into one loop. Its window operations are slow or cannot be used for depthwise
//! kernels, pooling with indices, and unfolding.
//!
//! ```text
//! output[o] = Σ over taps k of input[o * stride + k * dilation - padding]
//! ```

use stablehlo::{Number, Value, Window};

use crate::cx::Cx;
use crate::error::{Error, Result};

/// The largest number of taps of a window that is written as slices.
const WRITTEN_OUT: i64 = 64;

/// Every list has one element for each spatial dimension. The spatial dimensions are the last ones.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    /// The padding before the first element. The padding after the last one follows from the sizes.
    pub padding: Vec<i64>,
    pub dilation: Vec<i64>,
    pub inputs: Vec<i64>,
    pub outputs: Vec<i64>,
}

impl Windows {
    /// The windows of a pooling operator, from its arguments.
    pub fn of_pool(cx: &Cx<'_>, input: &[i64], spatial: usize) -> Result<Windows> {
        let list = |name: &str, otherwise: &[i64]| -> Result<Vec<i64>> {
            let items = cx.ints(name)?;
            match items.len() {
                0 => Ok(otherwise.to_vec()),
                1 => Ok(vec![items[0]; spatial]),
                n if n == spatial => Ok(items),
                _ => Err(Error::runtime(format!("{name} must have {spatial} elements"))),
            }
        };
        if input.len() < spatial {
            return Err(Error::runtime(format!("pooling over {spatial} dimensions of a {}-d tensor", input.len())));
        }
        let ones = vec![1; spatial];
        let kernel = list("kernel_size", &ones)?;
        let mut windows = Windows {
            strides: list("stride", &kernel)?,
            padding: list("padding", &vec![0; spatial])?,
            dilation: list("dilation", &ones)?,
            inputs: input[input.len() - spatial..].to_vec(),
            outputs: Vec::new(),
            kernel,
        };
        let ceil = cx.bool("ceil_mode")?;
        windows.outputs = (0..spatial).map(|i| windows.pooled_size(i, ceil)).collect();
        Ok(windows)
    }

    fn pooled_size(&self, i: usize, ceil: bool) -> i64 {
        let room = self.inputs[i] + 2 * self.padding[i] - self.reach(i) - 1;
        let size = (room + if ceil { self.strides[i] - 1 } else { 0 }).div_euclid(self.strides[i]) + 1;
        // The last window must start inside the input or the padding before it.
        if ceil && (size - 1) * self.strides[i] >= self.inputs[i] + self.padding[i] { size - 1 } else { size }
    }

    pub fn spatial(&self) -> usize {
        self.kernel.len()
    }

    /// The distance from a window's first element to its last.
    pub fn reach(&self, i: usize) -> i64 {
        self.dilation[i] * (self.kernel[i] - 1)
    }

    /// The distance from the first window's first element to the last window's last.
    pub fn covered(&self, i: usize) -> i64 {
        (self.outputs[i] - 1) * self.strides[i] + self.reach(i)
    }

    /// Whether there are few enough taps to write them as slices.
    pub fn is_small(&self) -> bool {
        self.kernel.iter().product::<i64>() <= WRITTEN_OUT
    }

    /// Whether the windows tile the input, so that a reshape splits it into windows, and a reshape is faster than
    /// slices.
    pub fn are_tiles(&self) -> bool {
        let exact = (0..self.spatial()).all(|i| {
            self.padding[i] == 0
                && (self.dilation[i] == 1 || self.kernel[i] == 1)
                && self.outputs[i] * self.kernel[i] == self.inputs[i]
                && (self.strides[i] == self.kernel[i] || self.outputs[i] == 1)
        });
        exact && (!self.is_small() || self.outputs.iter().all(|&o| o == 1))
    }

    /// The input with each spatial dimension split into (output, element in the window). Tiles only.
    pub fn split<'b>(&self, x: Value<'b>) -> Value<'b> {
        let mut dims = self.leading(x);
        dims.extend((0..self.spatial()).flat_map(|i| [self.outputs[i], self.kernel[i]]));
        x.reshape(&dims)
    }

    /// The dimensions of [`Windows::split`] that index elements in a window.
    pub fn split_axes(&self, x: Value<'_>) -> Vec<usize> {
        let leading = x.rank() - self.spatial();
        (0..self.spatial()).map(|i| leading + 2 * i + 1).collect()
    }

    /// The adjoint of a sum over [`Windows::split_axes`]: repeats each output over its window, in the split shape.
    pub fn repeated<'b>(&self, y: Value<'b>) -> Value<'b> {
        let mut dims = self.leading(y);
        let places: Vec<usize> = (0..dims.len()).chain((0..self.spatial()).map(|i| dims.len() + 2 * i)).collect();
        dims.extend((0..self.spatial()).flat_map(|i| [self.outputs[i], self.kernel[i]]));
        y.broadcast_in_dim(&dims, &places)
    }

    /// The dimensions of a tensor of the inputs' sizes, from one of the outputs' sizes.
    pub fn input_dims(&self, y: Value<'_>) -> Vec<i64> {
        [self.leading(y), self.inputs.clone()].concat()
    }

    /// The windows as XLA's window attributes, over all `rank` dimensions.
    pub fn window(&self, rank: usize) -> Window {
        let mut window = Window::unit(rank);
        for (i, axis) in (rank - self.spatial()..rank).enumerate() {
            window.sizes[axis] = self.kernel[i];
            window.strides[axis] = self.strides[i];
            window.window_dilations[axis] = self.dilation[i];
            window.padding[axis] = (self.padding[i], self.covered(i) + 1 - self.inputs[i] - self.padding[i]);
        }
        window
    }

    /// The coordinates of each window element, in row-major order.
    pub fn taps(&self) -> Vec<Vec<i64>> {
        self.kernel.iter().fold(vec![Vec::new()], |taps, &size| {
            taps.iter().flat_map(|tap| (0..size).map(move |k| [tap.as_slice(), &[k]].concat())).collect()
        })
    }

    /// The input padded with `fill` so that every tap of every window is in range.
    pub fn extend<'b>(&self, x: Value<'b>, fill: Number) -> Value<'b> {
        let high: Vec<i64> =
            (0..self.spatial()).map(|i| self.covered(i) + 1 - self.inputs[i] - self.padding[i]).collect();
        let (low, high) = (self.widened(x, &self.padding, 0), self.widened(x, &high, 0));
        x.pad(fill, &low, &high, &vec![0; x.rank()])
    }

    /// The input elements that one tap reads for each window, with the outputs' sizes.
    pub fn inputs_at_tap<'b>(&self, extended: Value<'b>, tap: &[i64]) -> Value<'b> {
        let starts: Vec<i64> = (0..self.spatial()).map(|i| tap[i] * self.dilation[i]).collect();
        let limits: Vec<i64> =
            (0..self.spatial()).map(|i| starts[i] + (self.outputs[i] - 1) * self.strides[i] + 1).collect();
        self.slice(extended, &starts, &limits, &self.strides)
    }

    /// The outputs at the strides of their windows, with `fill` between and around them.
    pub fn dilate<'b>(&self, y: Value<'b>, fill: Number) -> Value<'b> {
        let low: Vec<i64> = (0..self.spatial()).map(|i| self.reach(i) - self.padding[i]).collect();
        let high: Vec<i64> = (0..self.spatial())
            .map(|i| self.inputs[i] + self.padding[i] - (self.outputs[i] - 1) * self.strides[i] - 1)
            .collect();
        let interior: Vec<i64> = self.strides.iter().map(|s| s - 1).collect();
        y.pad(fill, &self.widened(y, &low, 0), &self.widened(y, &high, 0), &self.widened(y, &interior, 0))
    }

    /// The outputs that read each input element through one tap, with the inputs' sizes.
    pub fn outputs_at_tap<'b>(&self, spread: Value<'b>, tap: &[i64]) -> Value<'b> {
        let starts: Vec<i64> = (0..self.spatial()).map(|i| self.reach(i) - tap[i] * self.dilation[i]).collect();
        let limits: Vec<i64> = (0..self.spatial()).map(|i| starts[i] + self.inputs[i]).collect();
        self.slice(spread, &starts, &limits, &vec![1; self.spatial()])
    }

    fn leading(&self, x: Value<'_>) -> Vec<i64> {
        let mut dims = x.dims();
        dims.truncate(dims.len() - self.spatial());
        dims
    }

    /// One number for each dimension of `x`, from one for each spatial dimension.
    fn widened(&self, x: Value<'_>, items: &[i64], others: i64) -> Vec<i64> {
        let mut all = vec![others; x.rank() - self.spatial()];
        all.extend_from_slice(items);
        all
    }

    fn slice<'b>(&self, x: Value<'b>, starts: &[i64], limits: &[i64], steps: &[i64]) -> Value<'b> {
        x.slice(&self.widened(x, starts, 0), &[self.leading(x).as_slice(), limits].concat(), &self.widened(x, steps, 1))
    }
}

/// Refuses an input with an empty dimension from `first` on. `expected` is the start of PyTorch's message.
pub(crate) fn check_not_empty(x: Value<'_>, first: usize, expected: &str) -> Result<()> {
    let sizes = x.dims();
    match (first..sizes.len()).find(|&axis| sizes[axis] == 0) {
        Some(axis) => {
            Err(Error::runtime(format!("{expected}, but input has sizes {sizes:?} with dimension {axis} being empty")))
        }
        None => Ok(()),
    }
}
