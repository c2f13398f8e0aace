//! Cells of recurrent networks: the part of a step after its matrix products.

use stablehlo::{DType, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::row::{Row, all_bounded, many};

pub(crate) const ROWS: &[Row] = &all_bounded([
    many(&["_thnn_fused_lstm_cell"], lstm_cell),
    many(&["_thnn_fused_lstm_cell_backward_impl"], lstm_cell_backward),
    many(&["_thnn_fused_gru_cell"], gru_cell),
    many(&["_thnn_fused_gru_cell_backward"], gru_cell_backward),
]);

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

pub(crate) fn through_tanh<'b>(grad: Value<'b>, y: Value<'b>) -> Value<'b> {
    grad * (-y.square() + 1)
}

/// The gates of an LSTM after their activation functions (input, forget, candidate, output), the new hidden state, and
/// the new cell state.
pub(crate) fn lstm_step<'b>(gates: [Value<'b>; 4], cell: Value<'b>) -> ([Value<'b>; 4], Value<'b>, Value<'b>) {
    let [input, forget, candidate, output] = gates;
    let (input, forget, output) = (input.logistic(), forget.logistic(), output.logistic());
    let candidate = candidate.tanh();
    let new = forget * cell + input * candidate;
    ([input, forget, candidate, output], output * new.tanh(), new)
}

/// The gradients of the gates before their activation functions, and of the old cell state.
pub(crate) fn lstm_step_back<'b>(
    gates: [Value<'b>; 4],
    [old, new]: [Value<'b>; 2],
    grad_hidden: Value<'b>,
    grad_cell: Option<Value<'b>>,
) -> ([Value<'b>; 4], Value<'b>) {
    let [input, forget, candidate, output] = gates;
    let new = new.tanh();
    let through_hidden = through_tanh(grad_hidden * output, new);
    let grad_cell = grad_cell.map_or(through_hidden, |grad| grad + through_hidden);
    let grads = [
        through_logistic(grad_cell * candidate, input),
        through_logistic(grad_cell * old, forget),
        through_tanh(grad_cell * input, candidate),
        through_logistic(grad_hidden * new, output),
    ];
    (grads, grad_cell * forget)
}

fn lstm_cell<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("cx")?.dtype;
    let gates = with_bias(cx, "input_gates", "input_bias")? + with_bias(cx, "hidden_gates", "hidden_bias")?;
    let (gates, hidden, cell) = lstm_step(split(cx, gates)?, wide(cx, "cx")?);
    Ok(vec![hidden.convert(dtype), cell.convert(dtype), joined(cx, &gates, dtype)])
}

fn lstm_cell_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("workspace")?.dtype;
    let gates: [Value<'b>; 4] = split(cx, wide(cx, "workspace")?)?;
    let grad_hidden = wide_or_none(cx, "grad_hy").unwrap_or(gates[0].splat_like(0));
    let cells = [wide(cx, "cx")?, wide(cx, "cy")?];
    let (grads, grad_cell) = lstm_step_back(gates, cells, grad_hidden, wide_or_none(cx, "grad_cy"));
    let grad_gates = joined(cx, &grads, grad_cell.dtype());
    let grad_bias = bias_grad(cx, grad_gates)?;
    Ok(vec![grad_gates.convert(dtype), grad_cell.convert(dtype), grad_bias.convert(dtype)])
}

/// The sum over the batch; empty for a cell without biases.
fn bias_grad<'b>(cx: &Cx<'b>, grad_gates: Value<'b>) -> Result<Value<'b>> {
    let none = cx.b().splat(0, grad_gates.dtype(), &[0]);
    Ok(if cx.bool("has_bias")? { grad_gates.reduce_sum(&[0]) } else { none })
}

/// The gates of a GRU after their activation functions (reset, update, candidate), and the new hidden state.
pub(crate) fn gru_step<'b>(
    input: [Value<'b>; 3],
    from_hidden: [Value<'b>; 3],
    hidden: Value<'b>,
) -> ([Value<'b>; 3], Value<'b>) {
    let reset = (input[0] + from_hidden[0]).logistic();
    let update = (input[1] + from_hidden[1]).logistic();
    let candidate = (input[2] + reset * from_hidden[2]).tanh();
    ([reset, update, candidate], candidate + update * (hidden - candidate))
}

/// The gradients of the input's part of the gates, of the hidden state's part, and of the old hidden state where it
/// passes through the update gate.
pub(crate) fn gru_step_back<'b>(
    gates: [Value<'b>; 3],
    hidden: Value<'b>,
    hidden_candidate: Value<'b>,
    grad: Value<'b>,
) -> ([Value<'b>; 3], [Value<'b>; 3], Value<'b>) {
    let [reset, update, candidate] = gates;
    let grad_candidate = through_tanh(grad * (-update + 1), candidate);
    let grad_update = through_logistic(grad * (hidden - candidate), update);
    let grad_reset = through_logistic(grad_candidate * hidden_candidate, reset);
    let from_hidden = [grad_reset, grad_update, grad_candidate * reset];
    ([grad_reset, grad_update, grad_candidate], from_hidden, grad * update)
}

/// The new hidden state, and for the backward pass: the reset, update and candidate gates, the old state, and the
/// hidden part of the candidate before the reset.
fn gru_cell<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("hx")?.dtype;
    let hidden = wide(cx, "hx")?;
    let from_hidden: [Value<'b>; 3] = split(cx, with_bias(cx, "hidden_gates", "hidden_bias")?)?;
    let input = split(cx, with_bias(cx, "input_gates", "input_bias")?)?;
    let ([reset, update, candidate], new) = gru_step(input, from_hidden, hidden);
    Ok(vec![new.convert(dtype), joined(cx, &[reset, update, candidate, hidden, from_hidden[2]], dtype)])
}

fn gru_cell_backward<'b>(cx: &Cx<'b>) -> Result<Vec<Value<'b>>> {
    let dtype = cx.ty("grad_hy")?.dtype;
    let grad = wide(cx, "grad_hy")?;
    let [reset, update, candidate, hidden, hidden_candidate] = split(cx, wide(cx, "workspace")?)?;
    let (input, from_hidden, grad_hidden) = gru_step_back([reset, update, candidate], hidden, hidden_candidate, grad);
    let (input_gates, hidden_gates) = (joined(cx, &input, grad.dtype()), joined(cx, &from_hidden, grad.dtype()));
    let (input_bias, hidden_bias) = (bias_grad(cx, input_gates)?, bias_grad(cx, hidden_gates)?);
    Ok([input_gates, hidden_gates, grad_hidden, input_bias, hidden_bias].map(|v| v.convert(dtype)).to_vec())
}
