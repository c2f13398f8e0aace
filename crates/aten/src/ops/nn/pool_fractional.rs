//! Fractional max pooling (Graham, "Fractional max-pooling", 2014): windows of one size whose positions follow from a
//! random number for each plane.

use stablehlo::{DType, Value};

use crate::common::pooling::{larger, scattered};
use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::places::Places;
use crate::row::{Row, many, one};

pub(crate) const ROWS: &[Row] = &[
    many(&["fractional_max_pool2d"], |cx| pool(cx, 2)),
    many(&["fractional_max_pool3d"], |cx| pool(cx, 3)),
    one(&["fractional_max_pool2d_backward"], |cx| pool_backward(cx, 2)),
    one(&["fractional_max_pool3d_backward"], |cx| pool_backward(cx, 3)),
];

/// The leading sizes, and the sizes of the pooled dimensions.
fn sizes(cx: &Cx<'_>, spatial: usize) -> Result<(Vec<i64>, Vec<i64>)> {
    let mut leading = cx.ty("self")?.dims;
    if leading.len() < spatial {
        return Err(Error::runtime(format!("pooling over {spatial} dimensions of a {}-d tensor", leading.len())));
    }
    let last = leading.split_off(leading.len() - spatial);
    Ok((leading, last))
}

fn pool<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Vec<Value<'b>>> {
    let x = cx.tensor("self")?;
    let b = cx.b();
    let (leading, inputs) = sizes(cx, spatial)?;
    let (kernel, outputs) = (cx.ints("kernel_size")?, cx.ints("output_size")?);
    // PyTorch's own check adds the two sizes, which overflows.
    if let Some(i) = (0..spatial).find(|&i| kernel[i] > inputs[i]) {
        let (window, pixels) = (kernel[i], inputs[i]);
        let message = format!("fractional_max_pool{spatial}d: a window of {window} elements is larger than {pixels}");
        return Err(Error::runtime(message));
    }
    let planes: i64 = leading.iter().product();
    let samples = cx.tensor("random_samples")?;
    // An unbatched input takes the first sample of a batch.
    let batch = if leading.len() < 2 { 1 } else { leading[0] };
    let samples = samples.slice_axis(0, 0, batch).reshape(&[planes, spatial as i64]);

    // [planes, (output, element in the window) for each dimension]. Each plane has its own start.
    let mut flat = b.splat(0, DType::I32, &vec![1; 1 + 2 * spatial]);
    for i in 0..spatial {
        // The samples of two dimensions are ordered (x, y); those of three dimensions are in the order of the
        // dimensions.
        let sample = if spatial == 2 { 1 - i } else { i };
        let start = starts(samples.select_axis(1, sample as i64).unsqueeze(1), inputs[i], outputs[i], kernel[i]);
        let mut dims = vec![1; 1 + 2 * spatial];
        dims[2 * i + 2] = kernel[i];
        let place = b.iota(DType::I32, &dims, 2 * i + 2);
        dims[2 * i + 2] = 1;
        (dims[0], dims[2 * i + 1]) = (planes, outputs[i]);
        flat = flat * inputs[i] + start.reshape(&dims) + place;
    }
    let dims = flat.dims();
    let count = dims[1..].iter().product();
    let rows = x.reshape(&[planes, inputs.iter().product()]);
    let window_elements = Places::along(1, flat.reshape(&[planes, count])).read(rows).reshape(&dims);
    let initial = [b.scalar(x.dtype().max_identity(), x.dtype()), b.scalar(i32::MAX, DType::I32)];
    let axes: Vec<usize> = (0..spatial).map(|i| 2 * i + 2).collect();
    let results = b.reduce(&[window_elements, flat], &initial, &axes, |a, b| larger((a[0], a[1]), (b[0], b[1])));
    let dims = [leading, outputs].concat();
    Ok(vec![results[0].reshape(&dims), results[1].reshape(&dims).convert(DType::I64)])
}

/// The starts of the windows, [planes, outputs]: steps of equal length with a random offset. The last window is at
/// the end.
fn starts<'b>(sample: Value<'b>, inputs: i64, outputs: i64, kernel: i64) -> Value<'b> {
    let b = sample.builder();
    let last = b.scalar(inputs - kernel, DType::I32);
    let output = b.iota(DType::I32, &[1, outputs], 1);
    if outputs == 1 {
        return last.broadcast_to(&[sample.dim(0), 1]);
    }
    let sample = sample.convert(sample.dtype().opmath());
    let dtype = sample.dtype();
    let step = b.scalar(inputs - kernel, dtype) / (outputs - 1);
    let phase = (sample * step).convert(DType::I32);
    let start = ((output.convert(dtype) + sample) * step).convert(DType::I32) - phase;
    output.eq(outputs - 1).select(last, start)
}

fn pool_backward<'b>(cx: &Cx<'b>, spatial: usize) -> Result<Value<'b>> {
    let (grad, index) = (cx.tensor("grad_output")?, cx.tensor("indices")?);
    let (_, inputs) = sizes(cx, spatial)?;
    let wide = grad.convert(grad.dtype().opmath());
    Ok(scattered(wide, index.convert(DType::I32), &inputs).convert(grad.dtype()))
}
