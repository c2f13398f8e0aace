//! Cells of recurrent networks: the part of a step after its matrix products.

use stablehlo::{DType, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, many};

pub(crate) const ROWS: &[Row] = &[
    many(&["_thnn_fused_lstm_cell"], lstm_cell),
    many(&["_thnn_fused_lstm_cell_backward_impl"], lstm_cell_backward),
    many(&["_thnn_fused_gru_cell"], gru_cell),
    many(&["_thnn_fused_gru_cell_backward"], gru_cell_backward),
];

/// A tensor argument in the type of the computation.
fn wide<'b>(cx: &Cx<'b>, name: &str) -> Result<Value<'b>> {
    let value = cx.tensor(name)?;
    Ok(value.convert(value.dtype().opmath()))
}

fn wide_or_none<'b>(cx: &Cx<'b>, name: &str) -> Option<Value<'b>> {
    cx.tensor_or_none(name).map(|value| value.convert(value.dtype().opmath()))
}

/// `name` plus its bias, if given.
fn with_bias<'b>(cx: &Cx<'b>, name: &str, bias: &str) -> Result<Value<'b>> {
    let gates = wide(cx, name)?;
    Ok(wide_or_none(cx, bias).map_or(gates, |bias| gates + bias))
}

/// A `[batch, N · hidden]` value as N values `[batch, hidden]`.
fn split<'b, const N: usize>(cx: &Cx<'b>, gates: Value<'b>) -> Result<[Value<'b>; N]> {
    let dims = gates.dims();
    match dims.as_slice() {
        [_, columns] if columns % N as i64 == 0 => {
            let hidden = columns / N as i64;
            Ok(std::array::from_fn(|k| gates.slice_axis(1, k as i64 * hidden, (k as i64 + 1) * hidden)))
        }
        _ => Err(Error::runtime(format!("{}: gates of shape {dims:?}", cx.operator))),
    }
}

/// The inverse of [`split`], as type `dtype`.
fn joined<'b>(cx: &Cx<'b>, parts: &[Value<'b>], dtype: DType) -> Value<'b> {
    cx.b().concatenate(parts, 1).convert(dtype)
}

/// `grad` times the derivative of the logistic function where its value is `y`.
fn through_logistic<'b>(grad: Value<'b>, y: Value<'b>) -> Value<'b> {
    grad * y * (-y + 1)
}

fn through_tanh<'b>(grad: Value<'b>, y: Value<'b>) -> Value<'b> {
    grad * (-y.square() + 1)
}

/// The new hidden and cell state, and for the backward pass the gates after their activation functions.
fn lstm_cell<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("cx")?.dtype;
    let gates = with_bias(cx, "input_gates", "input_bias")? + with_bias(cx, "hidden_gates", "hidden_bias")?;
    let [input, forget, candidate, output] = split(cx, gates)?;
    let (input, forget, output) = (input.logistic(), forget.logistic(), output.logistic());
    let candidate = candidate.tanh();
    let cell = forget * wide(cx, "cx")? + input * candidate;
    let hidden = output * cell.tanh();
    Ok(vec![hidden.convert(dtype), cell.convert(dtype), joined(cx, &[input, forget, candidate, output], dtype)])
}

fn lstm_cell_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("workspace")?.dtype;
    let [input, forget, candidate, output] = split(cx, wide(cx, "workspace")?)?;
    let (old_cell, tanh_cell) = (wide(cx, "cx")?, wide(cx, "cy")?.tanh());
    let grad_hidden = wide_or_none(cx, "grad_hy").unwrap_or(output.splat_like(0));
    let through_hidden = through_tanh(grad_hidden * output, tanh_cell);
    let grad_cell = wide_or_none(cx, "grad_cy").map_or(through_hidden, |grad| grad + through_hidden);
    let grads = [
        through_logistic(grad_cell * candidate, input),
        through_logistic(grad_cell * old_cell, forget),
        through_tanh(grad_cell * input, candidate),
        through_logistic(grad_hidden * tanh_cell, output),
    ];
    let grad_gates = joined(cx, &grads, grad_cell.dtype());
    let grad_bias = bias_grad(cx, grad_gates)?;
    Ok(vec![grad_gates.convert(dtype), (grad_cell * forget).convert(dtype), grad_bias.convert(dtype)])
}

/// The sum over the batch; empty for a cell without biases.
fn bias_grad<'b>(cx: &Cx<'b>, grad_gates: Value<'b>) -> Result<Value<'b>> {
    let none = cx.b().splat(0, grad_gates.dtype(), &[0]);
    Ok(if cx.bool("has_bias")? { grad_gates.reduce_sum(&[0]) } else { none })
}

/// The new hidden state, and for the backward pass: the reset, update and candidate gates, the old state, and the
/// hidden part of the candidate before the reset.
fn gru_cell<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("hx")?.dtype;
    let hidden = wide(cx, "hx")?;
    let [input_reset, input_update, input_candidate] = split(cx, with_bias(cx, "input_gates", "input_bias")?)?;
    let [hidden_reset, hidden_update, hidden_candidate] = split(cx, with_bias(cx, "hidden_gates", "hidden_bias")?)?;
    let reset = (input_reset + hidden_reset).logistic();
    let update = (input_update + hidden_update).logistic();
    let candidate = (input_candidate + reset * hidden_candidate).tanh();
    let new = candidate + update * (hidden - candidate);
    Ok(vec![new.convert(dtype), joined(cx, &[reset, update, candidate, hidden, hidden_candidate], dtype)])
}

fn gru_cell_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("grad_hy")?.dtype;
    let grad = wide(cx, "grad_hy")?;
    let [reset, update, candidate, hidden, hidden_candidate] = split(cx, wide(cx, "workspace")?)?;
    let grad_candidate = through_tanh(grad * (-update + 1), candidate);
    let grad_update = through_logistic(grad * (hidden - candidate), update);
    let grad_reset = through_logistic(grad_candidate * hidden_candidate, reset);
    let input_gates = joined(cx, &[grad_reset, grad_update, grad_candidate], grad.dtype());
    let hidden_gates = joined(cx, &[grad_reset, grad_update, grad_candidate * reset], grad.dtype());
    let (input_bias, hidden_bias) = (bias_grad(cx, input_gates)?, bias_grad(cx, hidden_gates)?);
    Ok([input_gates, hidden_gates, grad * update, input_bias, hidden_bias].map(|v| v.convert(dtype)).to_vec())
}
