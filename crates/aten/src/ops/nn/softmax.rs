//! Softmax, its logarithm, and their derivatives.

use stablehlo::{DType, DTypes, Value};

use crate::cx::Cx;
use crate::error::Result;
use crate::row::{Row, all_bounded, one};

pub(crate) const ROWS: &[Row] = &all_bounded([
    one(&["_softmax"], |cx| float_along(cx, softmax)),
    one(&["_log_softmax"], |cx| {
        float_along(cx, |x, axes| {
            let shifted = minus_largest(x, axes);
            shifted - shifted.exp().reduce_sum(axes).log().keep_dims(axes)
        })
    }),
    one(&["_safe_softmax"], |cx| {
        float_along(cx, |x, axes| {
            let nothing = x.eq(f64::NEG_INFINITY).reduce_all(axes).keep_dims(axes);
            nothing.select(x.splat_like(0), softmax(x, axes))
        })
    }),
    one(&["_softmax_backward_data"], |cx| {
        backward(cx, |grad, output, axes| {
            let product = grad * output;
            product - output * product.reduce_sum(axes).keep_dims(axes)
        })
    })
    .one_dtype(&["grad_output", "output"])
    .takes(&["output"], DTypes::FLOATS),
    one(&["_log_softmax_backward_data"], |cx| {
        backward(cx, |grad, output, axes| grad - output.exp() * grad.reduce_sum(axes).keep_dims(axes))
    })
    .one_dtype(&["grad_output", "output"])
    .takes(&["output"], DTypes::FLOATS),
    one(&["_masked_softmax"], |cx| {
        let x = cx.tensor("self")?;
        let hidden = mask(cx, x)?;
        let axes = masked_axes(cx, x)?;
        let wide = x.convert(x.dtype().opmath());
        Ok(softmax(hidden.select(wide.splat_like(f64::NEG_INFINITY), wide), &axes).convert(x.dtype()))
    }),
    one(&["_masked_softmax_backward"], |cx| {
        let output = cx.tensor("output")?;
        let hidden = mask(cx, output)?;
        let axes = masked_axes(cx, output)?;
        let dtype = output.dtype();
        let (grad, output) = (cx.tensor("grad_output")?.convert(dtype.opmath()), output.convert(dtype.opmath()));
        let product = hidden.select(grad.splat_like(0), grad * output);
        let gradient = product - output * product.reduce_sum(&axes).keep_dims(&axes);
        Ok(hidden.select(gradient.splat_like(0), gradient).convert(dtype))
    }),
]);

/// Applies `f` to `self` along `dim`, in the result's type.
fn float_along<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, &[usize]) -> Value<'b>) -> Result<Value<'b>> {
    let x = cx.tensor("self")?;
    let dtype = match cx.dtype_or_none("dtype") {
        Some(dtype) => dtype,
        None if cx.bool("half_to_float")? => DType::F32,
        None => x.dtype(),
    };
    let axes = cx.axes_arg("dim", x.rank())?;
    if x.numel() == 0 {
        return Ok(x.convert(dtype));
    }
    cx.check_dtype(dtype, DTypes::FLOATS)?;
    Ok(f(x.convert(dtype.opmath()), &axes).convert(dtype))
}

/// `x` minus its largest element, so that exponentials do not overflow.
fn minus_largest<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    x - x.reduce_max(axes).keep_dims(axes)
}

/// `exp x / Σ exp x`.
pub(crate) fn softmax<'b>(x: Value<'b>, axes: &[usize]) -> Value<'b> {
    let exponential = minus_largest(x, axes).exp();
    exponential / exponential.reduce_sum(axes).keep_dims(axes)
}

fn backward<'b>(cx: &Cx<'b>, f: impl FnOnce(Value<'b>, Value<'b>, &[usize]) -> Value<'b>) -> Result<Value<'b>> {
    let (grad, output) = (cx.tensor("grad_output")?, cx.tensor("output")?);
    let dtype = cx.dtype_or_none("input_dtype").unwrap_or(grad.dtype());
    let axes = cx.axes_arg("dim", output.rank())?;
    let wide = output.dtype().opmath();
    Ok(f(grad.convert(wide), output.convert(wide), &axes).convert(dtype))
}

/// The dimension of a masked softmax; the last by default.
fn masked_axes(cx: &Cx<'_>, x: Value<'_>) -> Result<Vec<usize>> {
    let axis = cx.axis(cx.int_or_none("dim").unwrap_or(-1), x.rank())?;
    Ok(if x.rank() == 0 { Vec::new() } else { vec![axis] })
}

/// The mask, true for masked elements, in a shape that broadcasts with `x` [batch, heads, queries, keys]. A mask of
/// type 0 is [queries, keys]; type 1 is [batch, keys].
fn mask<'b>(cx: &Cx<'b>, x: Value<'b>) -> Result<Value<'b>> {
    let mask = cx.tensor("mask")?.convert(DType::Bool);
    let dims = mask.dims();
    Ok(match (cx.int_or_none("mask_type"), dims.as_slice()) {
        (Some(1), &[batch, keys]) if x.rank() == 4 => mask.reshape(&[batch, 1, 1, keys]),
        _ => mask,
    })
}
