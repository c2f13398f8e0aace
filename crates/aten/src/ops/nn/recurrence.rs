//! Recurrent networks: one direction of a layer, as a loop over time steps.
//!
//! Notation: t = time, b = sample, h = width of the hidden state, g = number of gates (4 for an LSTM, 3 for a GRU,
//! 1 for others), k = number of values that the backward pass needs of each step.
//!
//! ```text
//! gates [t, b, g * h]   lengths [b]   hx, cx [b, h]   weight [g * h, h]   bias [g * h]
//! output [t, b, h]      kept [t, b, k * h]
//! ```
//!
//! `gates` is the input's part of the gates, which one matrix product computes for all steps. A sample whose sequence
//! has ended keeps its state. Time and batch may be bounded: the loop has as many rounds as there are valid steps, and no
//! sample depends on another one.

use stablehlo::{DType, DotDims, Extent, Value};

use crate::cx::Cx;
use crate::error::{Error, Result};
use crate::ops::nn::ctc::{at_time, with_time};
use crate::ops::nn::rnn::{gru_step, gru_step_back, lstm_step, lstm_step_back, through_tanh};
use crate::row::{Row, all_bounded, many};

pub(crate) const ROWS: &[Row] = &all_bounded([
    many(&["torchtpu::rnn_steps"], |cx| Layer::of(cx)?.forward()),
    many(&["torchtpu::rnn_steps_backward"], |cx| Layer::of(cx)?.backward()),
]);

#[derive(Clone, Copy, PartialEq)]
enum Cell {
    Lstm,
    Gru,
    Tanh,
    Relu,
}

/// The results of a step: the hidden state, the cell state, and further values for the backward pass.
type Step<'b> = (Value<'b>, Option<Value<'b>>, Vec<Value<'b>>);

/// The gradients of a step: of the input's part of the gates, of the hidden state's part, of the old hidden state where
/// it passes by that part, and of the old cell state.
type Grads<'b> = (Vec<Value<'b>>, Option<Vec<Value<'b>>>, Option<Value<'b>>, Option<Value<'b>>);

struct Layer<'a, 'b> {
    call: &'a Cx<'b>,
    cell: Cell,
    reverse: bool,
    /// The element type of the results, and that of the arithmetic.
    dtype: DType,
    wide: DType,
    lengths: Option<Value<'b>>,
    hx: Value<'b>,
    cx: Option<Value<'b>>,
    weight: Value<'b>,
    extents: Vec<Extent>,
    times: i64,
    batch: i64,
    width: i64,
    /// The number of valid steps.
    end: Value<'b>,
}

impl<'a, 'b> Layer<'a, 'b> {
    fn of(call: &'a Cx<'b>) -> Result<Layer<'a, 'b>> {
        let cell = match call.str("cell")?.as_str() {
            "lstm" => Cell::Lstm,
            "gru" => Cell::Gru,
            "rnn_tanh" => Cell::Tanh,
            "rnn_relu" => Cell::Relu,
            other => return Err(Error::runtime(format!("{}: unknown cell {other:?}", call.operator))),
        };
        // [t, b, ..] in both directions.
        let steps = call.tensor(if call.tensor_or_none("gates").is_some() { "gates" } else { "grad_output" })?;
        steps.require_prefix(0, "a recurrent network over merged dimensions");
        let dims = steps.dims();
        let weight = call.tensor("weight")?;
        let width = weight.dim(1);
        let extents = vec![steps.extent(0), steps.extent(1), Extent::default()];
        let (state, whole) = ([dims[1], width], [Extent::default(), Extent::default()]);
        let lengths = given(call, "lengths", &dims[1..2], &extents[1..2])?;
        Ok(Layer {
            cell,
            reverse: call.bool("reverse")?,
            dtype: steps.dtype(),
            wide: steps.dtype().opmath(),
            lengths: lengths.map(|lengths| lengths.convert(DType::I32)),
            hx: call.with_padding(call.tensor("hx")?, &state, &extents[1..])?,
            cx: given(call, "cx", &state, &extents[1..])?,
            weight: call.with_padding(weight, &[cell.gates() * width, width], &whole)?,
            extents,
            times: dims[0],
            batch: dims[1],
            width,
            end: steps.size(0, DType::I32),
            call,
        })
    }

    /// An argument `[t, b, parts * h]`, its padding included.
    fn steps(&self, name: &str, parts: i64) -> Result<Value<'b>> {
        let dims = [self.times, self.batch, parts * self.width];
        self.call.with_padding(self.call.tensor(name)?, &dims, &self.extents)
    }

    /// An argument `[b, h]`, its padding included, if it is given.
    fn state(&self, name: &str) -> Result<Option<Value<'b>>> {
        given(self.call, name, &[self.batch, self.width], &self.extents[1..])
    }

    /// Zeros, `parts` times the width, for each time and sample.
    fn zeros(&self, parts: i64) -> Value<'b> {
        self.call.b().splat(0, self.dtype, &[self.times, self.batch, parts * self.width])
    }

    /// A value of all times with the extents of the arguments.
    fn of_steps(&self, value: Value<'b>) -> Value<'b> {
        value.with_extents(self.extents.clone())
    }

    fn of_state(&self, value: Value<'b>) -> Value<'b> {
        value.convert(self.dtype).without_extents().with_extents(self.extents[1..].to_vec())
    }

    /// The time of a round of the loop.
    fn time(&self, round: Value<'b>, end: Value<'b>, reverse: bool) -> Value<'b> {
        if reverse { end - round - 1 } else { round }
    }

    fn forward(&self) -> Result<Vec<Value<'b>>> {
        let b = self.call.b();
        let width = [self.cell.gates() * self.width];
        let bias = given(self.call, "bias", &width, &self.extents[2..])?.map(|bias| bias.convert(self.wide));
        let kept = self.cell.kept();
        let mut state = vec![
            b.scalar(0, DType::I32),
            self.end,
            self.hx,
            self.cx.unwrap_or(self.hx),
            self.zeros(1),
            self.zeros(kept),
            self.steps("gates", self.cell.gates())?,
            self.weight,
        ];
        state.extend(bias);
        state.extend(self.lengths);
        let done = b.while_loop(
            &state,
            |state| state[0].lt(state[1]),
            |state| {
                let &[round, end, hidden, cell, output, all_kept, gates, weight, ..] = state else {
                    unreachable!("the loop carries eight values or more");
                };
                let time = self.time(round, end, self.reverse);
                let lengths = self.lengths.map(|_| state[state.len() - 1]);
                let from_hidden = hidden.dot_general(weight, &over(1, 1), self.wide);
                let from_hidden = bias.map_or(from_hidden, |_| from_hidden + state[8]);
                let (new, new_cell, mut keep) =
                    self.step(at_time(gates, time).convert(self.wide), from_hidden, hidden, cell);
                let live = lengths.map(|lengths| time.broadcast_to(&[self.batch]).lt(lengths).unsqueeze(1));
                let chosen = |new: Value<'b>, old: Value<'b>| {
                    let new = new.convert(self.dtype);
                    live.map_or(new, |live| live.select(new, old))
                };
                let new = chosen(new, hidden);
                let new_cell = new_cell.map_or(cell, |new| chosen(new, cell));
                keep.iter_mut().for_each(|kept| *kept = kept.convert(self.dtype));
                if self.cell == Cell::Lstm {
                    keep.push(new_cell);
                }
                let all_kept = match keep.as_slice() {
                    [] => all_kept,
                    keep => with_time(all_kept, time, b.concatenate(keep, 1)),
                };
                [&[round + 1, end, new, new_cell, with_time(output, time, new), all_kept], &state[6..]].concat()
            },
        );
        let none = b.splat(0, self.dtype, &[0]);
        let cell = self.cx.map_or(none, |_| self.of_state(done[3]));
        Ok(vec![self.of_steps(done[4]), self.of_state(done[2]), cell, self.of_steps(done[5])])
    }

    /// One step from the two parts of the gates and the states before it.
    fn step(&self, input: Value<'b>, from_hidden: Value<'b>, hidden: Value<'b>, cell: Value<'b>) -> Step<'b> {
        match self.cell {
            Cell::Lstm => {
                let (gates, hidden, cell) = lstm_step(self.parts(input + from_hidden), cell.convert(self.wide));
                (hidden, Some(cell), gates.to_vec())
            }
            Cell::Gru => {
                let from_hidden: [Value<'b>; 3] = self.parts(from_hidden);
                let (gates, new) = gru_step(self.parts(input), from_hidden, hidden.convert(self.wide));
                (new, None, [&gates[..], &[from_hidden[2]]].concat())
            }
            Cell::Tanh => ((input + from_hidden).tanh(), None, Vec::new()),
            Cell::Relu => ((input + from_hidden).max(0), None, Vec::new()),
        }
    }

    /// A [batch, N * width] value as N values.
    fn parts<const N: usize>(&self, value: Value<'b>) -> [Value<'b>; N] {
        let width = self.width;
        std::array::from_fn(|k| value.slice_axis(1, k as i64 * width, (k as i64 + 1) * width))
    }

    fn backward(&self) -> Result<Vec<Value<'b>>> {
        let b = self.call.b();
        let zeros = b.splat(0, self.wide, &[self.batch, self.width]);
        let or_zeros = |name: &str| self.state(name).map(|grad| grad.map_or(zeros, |grad| grad.convert(self.wide)));
        let (output, kept) = (self.steps("output", 1)?, self.steps("kept", self.cell.kept())?);
        let before = self.before(output, self.hx);
        let old_cells = match (self.cell, self.cx) {
            (Cell::Lstm, Some(first)) => self.before(kept.slice_axis(2, 4 * self.width, 5 * self.width), first),
            _ => before,
        };
        let gates = self.cell.gates();
        let is_gru = self.cell == Cell::Gru;
        let mut state = vec![
            b.scalar(0, DType::I32),
            self.end,
            or_zeros("grad_hy")?,
            or_zeros("grad_cy")?,
            self.zeros(gates),
            self.zeros(if is_gru { gates } else { 0 }),
            self.steps("grad_output", 1)?,
            output,
            kept,
            before,
            old_cells,
            self.weight,
        ];
        state.extend(self.lengths);
        let done = b.while_loop(
            &state,
            |state| state[0].lt(state[1]),
            |state| {
                let &[
                    round,
                    end,
                    grad,
                    grad_cell,
                    all_grads,
                    all_hidden,
                    grad_output,
                    output,
                    kept,
                    before,
                    old_cells,
                    weight,
                    ..,
                ] = state
                else {
                    unreachable!("the loop carries twelve values or more");
                };
                let time = self.time(round, end, !self.reverse);
                let step = |value: Value<'b>| at_time(value, time).convert(self.wide);
                let grad = grad + step(grad_output);
                let (input, from_hidden, around, before_cell) =
                    self.step_back([step(output), step(kept), step(before), step(old_cells)], grad, grad_cell);
                let live =
                    self.lengths.map(|_| time.broadcast_to(&[self.batch]).lt(state[state.len() - 1]).unsqueeze(1));
                let or_zero = |grads: &[Value<'b>]| {
                    let grads = b.concatenate(grads, 1);
                    live.map_or(grads, |live| live.select(grads, 0)).convert(self.dtype)
                };
                let input = or_zero(&input);
                let from_hidden = from_hidden.map(|grads| or_zero(&grads));
                let through = from_hidden.unwrap_or(input).dot_general(weight, &over(1, 0), self.wide);
                let through = around.map_or(through, |around| through + around);
                let old = live.map_or(through, |live| live.select(through, grad));
                let old_cell =
                    before_cell.map_or(grad_cell, |new| live.map_or(new, |live| live.select(new, grad_cell)));
                let all_hidden = from_hidden.map_or(all_hidden, |grads| with_time(all_hidden, time, grads));
                [&[round + 1, end, old, old_cell, with_time(all_grads, time, input), all_hidden], &state[6..]].concat()
            },
        );
        let grads = self.of_steps(done[4]);
        let from_hidden = if is_gru { self.of_steps(done[5]) } else { grads };
        let steps = DotDims { lhs_contract: vec![0, 1], rhs_contract: vec![0, 1], ..DotDims::default() };
        let grad_weight = from_hidden.dot_general(self.of_steps(before), &steps, self.wide);
        let grad_bias = from_hidden.convert(self.wide).reduce_sum(&[0, 1]);
        let none = b.splat(0, self.dtype, &[0]);
        let grad_cell = self.cx.map_or(none, |_| self.of_state(done[3]));
        let of_parameters = [grad_weight, grad_bias].map(|grad| grad.convert(self.dtype));
        Ok(vec![grads, self.of_state(done[2]), grad_cell, of_parameters[0], of_parameters[1]])
    }

    /// The states before each step: the first one, and those that the other steps left.
    fn before(&self, states: Value<'b>, first: Value<'b>) -> Value<'b> {
        let time = self.call.b().iota(DType::I32, &[self.times, 1, 1], 0);
        let (shift, start) = if self.reverse { (-1, self.end - 1) } else { (1, self.end.splat_like(0)) };
        let is_first = time.eq(start.broadcast_to(&[self.times, 1, 1]));
        is_first.select(first.unsqueeze(0).broadcast_to(&states.dims()), states.pad_axis(0, 0, shift, -shift))
    }

    fn step_back(
        &self,
        [output, kept, before, old_cell]: [Value<'b>; 4],
        grad: Value<'b>,
        grad_cell: Value<'b>,
    ) -> Grads<'b> {
        match self.cell {
            Cell::Lstm => {
                let [input, forget, candidate, out, cell] = self.parts(kept);
                let gates = [input, forget, candidate, out];
                let (grads, grad_old) = lstm_step_back(gates, [old_cell, cell], grad, Some(grad_cell));
                (grads.to_vec(), None, None, Some(grad_old))
            }
            Cell::Gru => {
                let [reset, update, candidate, from_hidden] = self.parts(kept);
                let (input, hidden, around) = gru_step_back([reset, update, candidate], before, from_hidden, grad);
                (input.to_vec(), Some(hidden.to_vec()), Some(around), None)
            }
            Cell::Tanh => (vec![through_tanh(grad, output)], None, None, None),
            Cell::Relu => (vec![output.gt(0).select(grad, 0)], None, None, None),
        }
    }
}

impl Cell {
    fn gates(self) -> i64 {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    fn kept(self) -> i64 {
        match self {
            Cell::Lstm => 5,
            Cell::Gru => 4,
            Cell::Tanh | Cell::Relu => 0,
        }
    }
}

/// An argument with its padding, if it is given.
fn given<'b>(call: &Cx<'b>, name: &str, dims: &[i64], extents: &[Extent]) -> Result<Option<Value<'b>>> {
    call.tensor_or_none(name).map(|value| call.with_padding(value, dims, extents)).transpose()
}

fn over(lhs: usize, rhs: usize) -> DotDims {
    DotDims { lhs_contract: vec![lhs], rhs_contract: vec![rhs], ..DotDims::default() }
}
