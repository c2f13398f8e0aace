"""Rows of crates/aten/src/ops/nn/recurrence.rs: layers of recurrent networks, over padded and packed sequences."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import rnn
from torchtpu.operators.recurrent import GATES, unrolled

from tests.helpers import check, check_compiled, check_refused, programs_made

LENGTHS = (3, 6, 1, 4)
LAYERS: dict[str, Any] = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "rnn_tanh": nn.RNN,
    "rnn_relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}
FORMS: list[dict[str, Any]] = [
    {},
    {"bias": False, "batch_first": True},
    {"num_layers": 2, "bidirectional": True},
    {"bidirectional": True, "batch_first": True},
]


def results(layer: nn.Module, x: Tensor, lengths: tuple[int, ...] | None) -> list[Tensor]:
    """The output, the last states and all gradients."""
    x = x.clone().requires_grad_()
    given: Any = x
    first = layer.batch_first
    if lengths is not None:
        given = rnn.pack_padded_sequence(x, torch.tensor(lengths), batch_first=first, enforce_sorted=False)
    output, last = layer(given)
    if lengths is not None:
        output, _ = rnn.pad_packed_sequence(output, batch_first=first, padding_value=-1.0, total_length=8)
    states = last if isinstance(last, tuple) else (last,)
    weights = torch.linspace(-1, 1, output.numel()).reshape(output.shape).to(x.device)
    (sum((state * state).sum() for state in states) + (output * weights).sum()).backward()
    return [output.detach(), *(state.detach() for state in states), x.grad, *(p.grad for p in layer.parameters())]


@pytest.mark.parametrize("lengths", [None, LENGTHS], ids=["padded", "packed"])
@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("cell", GATES)
def test_a_layer_and_its_gradients(
    cell: str, form: dict[str, Any], lengths: tuple[int, ...] | None, device: torch.device, mode: str
) -> None:
    layer = LAYERS[cell](5, 7, **form)
    x = torch.randn(4, 6, 5) if layer.batch_first else torch.randn(6, 4, 5)
    expected = results(copy.deepcopy(layer), x, lengths)
    actual = results(layer.to(device), x.to(device), lengths)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)
        assert one.stride() == other.stride()


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_dtypes(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    layer = nn.LSTM(5, 7).to(dtype)
    x = torch.randn(6, 4, 5, dtype=dtype)
    expected = results(copy.deepcopy(layer), x, None)
    actual = results(layer.to(device), x.to(device), None)
    tolerance = 0.05 if dtype == torch.bfloat16 else 1e-9
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("cell", GATES)
def test_the_gradient_of_the_gradient(cell: str, device: torch.device, mode: str) -> None:
    layer = LAYERS[cell](3, 4).double()

    def penalty(d: torch.device) -> list[Tensor]:
        own = copy.deepcopy(layer).to(d)
        x = torch.linspace(-1, 1, 30, dtype=torch.float64).reshape(5, 2, 3).to(d).requires_grad_()
        (grad,) = torch.autograd.grad(own(x)[0].square().sum(), x, create_graph=True)
        grad.square().sum().backward()
        return [x.grad, *(parameter.grad for parameter in own.parameters())]

    check(penalty, device)


def test_without_autograd(device: torch.device, mode: str) -> None:
    layer = nn.GRU(3, 4)

    def run(d: torch.device) -> list[Tensor]:
        own = copy.deepcopy(layer).to(d)
        with torch.no_grad():
            first = own(torch.ones(5, 2, 3, device=d))[0]
        with torch.inference_mode():
            return [first, own(torch.ones(1, 2, 3, device=d))[0].clone()]

    check(run, device)


def test_transforms_and_forward_derivatives(device: torch.device, mode: str) -> None:
    layer = nn.LSTM(3, 4)
    names = [name for name, _ in layer.named_parameters()]

    def run(d: torch.device) -> list[Tensor]:
        parameters = {name: value.detach().clone().to(d) for name, value in layer.named_parameters()}
        x = torch.linspace(-1, 1, 30).reshape(5, 2, 3).to(d)

        def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
            weights = [parameters[name] for name in names]
            states = [torch.zeros(1, x.shape[1], 4, device=x.device)] * 2
            return torch.lstm(x, states, weights, True, 1, 0.0, True, False, False)[0].square().sum()

        _, tangent = torch.func.jvp(lambda x: loss(parameters, x), (x,), (torch.ones_like(x),))
        return [torch.func.grad(loss)(parameters, x)[names[0]], tangent]

    # oneDNN's layers have no forward derivative.
    with torch.backends.mkldnn.flags(enabled=False):
        check(run, device)


def test_autocast_as_on_cuda(device: torch.device, mode: str) -> None:
    layer, x = nn.LSTM(5, 7).to(device), torch.randn(6, 4, 5, device=device)
    with torch.autocast("tpu", dtype=torch.bfloat16):
        output, (hidden, cell) = layer(x)
    assert {output.dtype, hidden.dtype, cell.dtype} == {torch.bfloat16}
    output.float().sum().backward()
    assert all(parameter.grad.dtype == torch.float32 for parameter in layer.parameters())


def test_the_operator_is_what_the_steps_compute(device: torch.device, mode: str) -> None:
    for cell, gates in GATES.items():
        for reverse in (False, True):
            given = [torch.randn(5, 3, gates * 4), torch.tensor([2, 5, 3]), torch.randn(3, 4)]
            given += [torch.randn(3, 4) if cell == "lstm" else None, torch.randn(gates * 4, 4), torch.randn(gates * 4)]
            expected = unrolled(*given, cell, reverse)
            moved = [each if each is None else each.to(device) for each in given]
            actual = torch.ops.torchtpu.rnn_steps(*moved, cell, reverse)[: len(expected)]
            for one, other in zip(actual, expected, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=1e-5, atol=1e-5)


def test_other_lengths_have_the_same_programs(device: torch.device) -> None:
    layer = nn.LSTM(3, 9, bidirectional=True).to(device)
    lengths = torch.randint(1, 24, (14, 6)).tolist()

    def step(own: list[int], time: int) -> None:
        x = torch.randn(time, 6, 3, device=device, requires_grad=True)
        packed = rnn.pack_padded_sequence(x, torch.tensor([time, *own[1:]]), enforce_sorted=False)
        output, _ = rnn.pad_packed_sequence(layer(packed)[0])
        output.square().mean().backward()

    with torch.tpu.set_eager_mode("strict"):
        for time, own in zip((24, 30, 25, 29, 26, 31, 28, 24, 32, 25), lengths, strict=False):
            step(own, time)
        made = programs_made()
        for time, own in zip((31, 26, 28, 29), lengths[10:], strict=True):
            step(own, time)
        assert programs_made() - made <= 1


@pytest.mark.parametrize("cell", GATES)
def test_weights_with_padding(cell: str, device: torch.device, mode: str) -> None:
    """The padding of a width must not get into the results."""
    gates = GATES[cell] * 5
    weights = [
        each / 4 for each in (torch.randn(gates, 5), torch.randn(gates, 5), torch.randn(gates), torch.randn(gates))
    ]
    x, state = torch.randn(5, 2, 5), torch.randn(1, 2, 5)

    def run(d: torch.device) -> Tensor:
        given = [each.to(d) for each in (x, state, *weights)]
        for each in given if d.type == "tpu" else ():
            for dim in (dim for dim, size in enumerate(each.shape) if size == 5):
                torch.tpu.mark_dynamic(each, dim, max=8)
        states: Any = [given[1], given[1]] if cell == "lstm" else given[1]
        return getattr(torch, cell)(given[0], states, given[2:], True, 1, 0.0, False, False, False)[0]

    check(run, device)


def test_packed_sequences(device: torch.device, mode: str) -> None:
    x = torch.randn(6, 4, 2, 3)

    def run(d: torch.device) -> list[Tensor]:
        leaf = x.to(d).requires_grad_()
        packed = rnn.pack_padded_sequence(leaf, torch.tensor(LENGTHS), enforce_sorted=False)
        padded, lengths = rnn.pad_packed_sequence(packed)
        padded.square().sum().backward()
        again = rnn.pack_sequence([torch.ones(3, device=d), torch.zeros(2, device=d)])
        return [packed.data.detach(), packed.batch_sizes, padded.detach(), lengths, leaf.grad, again.data]

    check(run, device)


@pytest.mark.parametrize(
    ("lengths", "shape"), [((3, 0), (3, 2, 1)), ((3,), (3, 2, 1)), ((1, 3), (3, 2, 1)), ((2, 1), (2, 0, 1))]
)
def test_lengths_that_do_not_fit(lengths: tuple[int, ...], shape: tuple[int, ...], device: torch.device) -> None:
    x = torch.randn(shape)
    check_refused(lambda d: torch._VF._pack_padded_sequence(x.to(d), torch.tensor(lengths), False), device)


def test_states_that_do_not_fit(device: torch.device) -> None:
    layer = nn.GRU(3, 4)
    weights = [each.detach() for each in layer.parameters()]

    def run(d: torch.device) -> Tensor:
        given = [weight.to(d) for weight in weights]
        state = torch.zeros(1, 5, 4, device=d)
        return torch.gru(torch.ones(5, 2, 3, device=d), state, given, True, 1, 0.0, False, False, False)[0]

    check_refused(run, device)


def test_compiled(device: torch.device) -> None:
    layer = nn.GRU(3, 4)

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        state = torch.zeros(1, x.shape[1], 4, device=x.device)
        return torch.gru(x, state, list(weights), True, 1, 0.0, False, False, False)[0].sin()

    check_compiled(run, device, torch.randn(5, 2, 3), *(each.detach() for each in layer.parameters()))
