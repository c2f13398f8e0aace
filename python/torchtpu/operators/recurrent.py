"""Recurrent layers as loops: `nn.LSTM`, `nn.GRU` and `nn.RNN`, over padded or packed sequences.

PyTorch's composites call a few operators for each time step, and for packed sequences a part of the batch at each.
Here one direction of a layer is one operator, `torchtpu::rnn_steps`, whose program has a loop over time. It takes
sequences of any length and, of packed ones, the length of each.

A call goes to PyTorch's composite where it is more general: projections (`proj_size`), and arguments that do not fit,
for its errors. Functorch's transforms and forward-mode derivatives take each step by PyTorch's operators.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import linear

from torchtpu.operators.sequences import Packing, is_transformed

GATES = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
KEPT = {"lstm": 5, "gru": 4, "rnn_tanh": 0, "rnn_relu": 0}
_STEPS = (
    "rnn_steps(Tensor gates, Tensor? lengths, Tensor hx, Tensor? cx, Tensor weight, Tensor? bias, str cell, "
    "bool reverse) -> (Tensor, Tensor, Tensor, Tensor)"
)
_BACKWARD = (
    "rnn_steps_backward(Tensor grad_output, Tensor? grad_hy, Tensor? grad_cy, Tensor? lengths, Tensor hx, Tensor? cx, "
    "Tensor weight, Tensor output, Tensor kept, str cell, bool reverse) -> (Tensor, Tensor, Tensor, Tensor, Tensor)"
)
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Defines the operators, and registers the layers before PyTorch's composites."""
    own, aten = torch.library.Library("torchtpu", "FRAGMENT"), torch.library.Library("aten", "IMPL")
    _libraries.extend((own, aten))
    for schema, like in ((_STEPS, _steps_like), (_BACKWARD, _backward_like)):
        name = own.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.register_fake(f"torchtpu::{name}", like, lib=own)
    for cell in GATES:
        for form in ("input", "data"):
            layer = _Layers(cell, getattr(getattr(torch.ops.aten, cell), form))
            for key in ("AutogradPrivateUse1", "PrivateUse1"):
                aten.impl(f"{cell}.{form}", getattr(layer, form), key)


def _steps_like(
    gates: Tensor,
    lengths: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    cell: str,
    reverse: bool,
) -> tuple[Tensor, ...]:
    time, batch, _ = gates.shape
    width = weight.shape[1]
    cell_state = gates.new_empty(0) if cx is None else torch.empty_like(cx)
    return (
        gates.new_empty(time, batch, width),
        gates.new_empty(batch, width),
        cell_state,
        gates.new_empty(time, batch, KEPT[cell] * width),
    )


def _backward_like(
    grad_output: Tensor,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    lengths: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    weight: Tensor,
    output: Tensor,
    kept: Tensor,
    cell: str,
    reverse: bool,
) -> tuple[Tensor, ...]:
    time, batch, width = output.shape
    return (
        output.new_empty(time, batch, GATES[cell] * width),
        output.new_empty(batch, width),
        output.new_empty(0) if cx is None else output.new_empty(batch, width),
        weight.new_empty(weight.shape),
        weight.new_empty(weight.shape[0]),
    )


class _Steps(torch.autograd.Function):
    """`torchtpu::rnn_steps` with its derivative. The derivative of the derivative goes through each step."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, lengths: Tensor | None, *given: Any) -> tuple[Tensor, ...]:
        hx, cx, weight, bias, cell, reverse = given
        output, hy, cy, kept = torch.ops.torchtpu.rnn_steps(gates, lengths, hx, cx, weight, bias, cell, reverse)
        ctx.save_for_backward(gates, lengths, hx, cx, weight, bias, output, kept)
        ctx.form = cell, reverse
        ctx.set_materialize_grads(False)
        return (output, hy, cy) if cx is not None else (output, hy)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        gates, lengths, hx, cx, weight, bias, output, kept = ctx.saved_tensors
        cell, reverse = ctx.form
        if torch.is_grad_enabled():
            return _through_steps((gates, hx, cx, weight, bias), lengths, cell, reverse, grads)
        grad_output, grad_hy, grad_cy = (*grads, None)[:3]
        if grad_output is None:
            grad_output = torch.zeros_like(output)
        grad_gates, grad_hx, grad_cx, grad_weight, grad_bias = torch.ops.torchtpu.rnn_steps_backward(
            grad_output, grad_hy, grad_cy, lengths, hx, cx, weight, output, kept, cell, reverse
        )
        grad_cx = grad_cx if cx is not None else None
        return grad_gates, None, grad_hx, grad_cx, grad_weight, grad_bias if bias is not None else None, None, None


def _through_steps(
    inputs: tuple[Any, ...],
    lengths: Tensor | None,
    cell: str,
    reverse: bool,
    grads: tuple[Tensor | None, ...],
) -> tuple[Tensor | None, ...]:
    """The gradients of a layer's inputs as differentiable values."""
    with torch.enable_grad():
        # Views of the inputs: their gradients are wanted, not those of what they were computed from.
        taken: list[Any] = [None if each is None else each.view_as(each) for each in inputs]
        gates, hx, cx, weight, bias = taken
        results = unrolled(gates, lengths, hx, cx, weight, bias, cell, reverse)
        kept = [(result, grad) for result, grad in zip(results, grads, strict=True) if grad is not None]
        wanted = [each for each in taken if each is not None and each.requires_grad]
        found = iter(
            torch.autograd.grad(
                [result for result, _ in kept], wanted, [grad for _, grad in kept], create_graph=True, allow_unused=True
            )
        )
    first, *rest = (next(found) if each is not None and each.requires_grad else None for each in taken)
    return first, None, *rest, None, None


def unrolled(
    gates: Tensor,
    lengths: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    weight: Tensor,
    bias: Tensor | None,
    cell: str,
    reverse: bool,
) -> tuple[Tensor, ...]:
    """What `torchtpu::rnn_steps` computes, by PyTorch's operators for each step."""
    outputs: list[Tensor] = []
    times = range(gates.shape[0])
    for time in reversed(times) if reverse else times:
        from_hidden = linear(hx, weight, bias)
        new, new_cell = _step(cell, gates[time], from_hidden, hx, cx)
        live = None if lengths is None else (lengths > time).unsqueeze(1)
        hx = new if live is None else torch.where(live, new, hx)
        if cx is not None and new_cell is not None:
            cx = new_cell if live is None else torch.where(live, new_cell, cx)
        outputs.append(hx)
    output = torch.stack(outputs[::-1] if reverse else outputs)
    return (output, hx) if cx is None else (output, hx, cx)


def _step(cell: str, gates: Tensor, from_hidden: Tensor, hx: Tensor, cx: Tensor | None) -> tuple[Tensor, Tensor | None]:
    if cell == "gru":
        (reset, update, new), (hidden_reset, hidden_update, hidden_new) = gates.chunk(3, 1), from_hidden.chunk(3, 1)
        reset, update = torch.sigmoid(reset + hidden_reset), torch.sigmoid(update + hidden_update)
        new = torch.tanh(new + reset * hidden_new)
        return new + update * (hx - new), None
    total = gates + from_hidden
    if cx is None:
        return torch.relu(total) if cell == "rnn_relu" else torch.tanh(total), None
    into, forget, new, out = total.chunk(4, 1)
    state = torch.sigmoid(forget) * cx + torch.sigmoid(into) * torch.tanh(new)
    return torch.sigmoid(out) * torch.tanh(state), state


class _Form(NamedTuple):
    """The numbers of a call that are no tensors."""

    has_biases: bool
    num_layers: int
    dropout: float
    train: bool
    bidirectional: bool


class _Layers:
    """The operators of a cell. `composite` is PyTorch's operator."""

    def __init__(self, cell: str, composite: Any) -> None:
        self.cell, self.composite = cell, composite

    def input(
        self, input: Tensor, hx: Any, params: list[Tensor], *rest: Any
    ) -> tuple[Tensor, ...]:  # rest: `_Form`, batch_first
        """`lstm.input` and its relatives: [time, batch, n], or [batch, time, n] with `batch_first`."""
        *form, batch_first = rest
        states = self._states(hx)
        batch = input.shape[0 if batch_first else 1] if input.dim() == 3 else -1
        if not self._takes(input, batch, states, params, _Form(*form)):
            return self._composite(input, hx, params, *rest)
        input, states, params = _cast(input, states, params)
        steps = input.transpose(0, 1) if batch_first else input
        output, *last = self._run(steps, None, states, params, _Form(*form))
        return (output.transpose(0, 1) if batch_first else output, *last)

    def data(self, data: Tensor, batch_sizes: Tensor, hx: Any, params: list[Tensor], *rest: Any) -> tuple[Tensor, ...]:
        """`lstm.data` and its relatives: the valid elements of a packed sequence, [steps, n]."""
        states = self._states(hx)
        batch = int(batch_sizes[0]) if data.dim() == 2 and batch_sizes.numel() else -1
        if not self._takes(data, batch, states, params, _Form(*rest)):
            return self._composite(data, batch_sizes, hx, params, *rest)
        data, states, params = _cast(data, states, params)
        packing = Packing(batch_sizes, data.device)
        output, *last = self._run(packing.unpacked(data, 0), packing.lengths, states, params, _Form(*rest))
        return (packing.packed(output), *last)

    def _states(self, hx: Any) -> list[Tensor]:
        return list(hx) if self.cell == "lstm" else [hx]

    def _composite(self, *arguments: Any) -> Any:
        return self.composite._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *arguments)

    def _takes(self, input: Tensor, batch: int, states: list[Tensor], params: list[Tensor], form: _Form) -> bool:
        """Whether the loops compute a call."""
        tensors = [input, *states, *params]
        directions = 2 if form.bidirectional else 1
        cells = form.num_layers * directions
        if len(states) != (2 if self.cell == "lstm" else 1) or len(params) != cells * (4 if form.has_biases else 2):
            return False
        dtypes = {each.dtype for each in tensors}
        fits = len(dtypes) == 1 or torch.is_autocast_enabled(input.device.type)
        if not fits or not all(each.is_floating_point() and each.device == input.device for each in tensors):
            return False
        if 0 in input.shape or not all(each.dim() == 3 for each in states):
            return False
        width, gates = states[0].shape[2], GATES[self.cell]
        if any(each.shape != (cells, batch, width) for each in states):
            return False
        weights = params[0].shape == (gates * width, input.shape[-1])
        return weights and all(each.shape[0] == gates * width for each in params)

    def _run(
        self, steps: Tensor, lengths: Tensor | None, states: list[Tensor], params: list[Tensor], form: _Form
    ) -> tuple[Tensor, ...]:
        directions, each = 2 if form.bidirectional else 1, 4 if form.has_biases else 2
        compute = unrolled if is_transformed() else _Steps.apply
        last: list[tuple[Tensor, ...]] = []
        for layer in range(form.num_layers):
            outputs = []
            for direction in range(directions):
                index = layer * directions + direction
                weight_ih, weight_hh, *biases = params[index * each : (index + 1) * each]
                bias_ih, bias_hh = biases or (None, None)
                gates = linear(steps, weight_ih, bias_ih)
                hx, cx = states[0][index], states[1][index] if len(states) == 2 else None
                output, *ends = compute(gates, lengths, hx, cx, weight_hh, bias_hh, self.cell, direction == 1)
                outputs.append(output)
                last.append(tuple(ends))
            steps = outputs[0] if directions == 1 else torch.cat(outputs, -1)
            if form.dropout and form.train and layer < form.num_layers - 1:
                steps = torch.dropout(steps, form.dropout, True)
        return (steps, *(torch.stack(ends) for ends in zip(*last, strict=True)))


def _cast(input: Tensor, states: list[Tensor], params: list[Tensor]) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """The tensors in autocast's dtype, where it is on, as CUDA's layers take them."""
    kind = input.device.type
    if not torch.is_autocast_enabled(kind):
        return input, states, params
    dtype = torch.get_autocast_dtype(kind)
    return input.to(dtype), [each.to(dtype) for each in states], [each.to(dtype) for each in params]
