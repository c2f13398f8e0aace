"""Views in compiled graphs: their strides and offsets, and the effect of writes on other tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, check_compiled

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def test_outputs_that_are_views(device: torch.device) -> None:
    def function(x: Tensor) -> list[Tensor]:
        y = x + 1
        return [y, y.t(), x[1:], x.view(-1), x, y.expand(2, 4, 3)]

    check_compiled(function, device, torch.randn(4, 3))
    x = torch.zeros(4, 3, device=device)
    torch.compile(function)(x)[2].add_(1)
    assert x.sum().item() == 9


def test_inputs_that_share_memory(device: torch.device) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(1)
        return y * 2

    def run(call: Callable[[Tensor, Tensor], Tensor], device: torch.device | str) -> list[Tensor]:
        base = torch.arange(10.0, device=device)
        return [call(base[2:6], base[4:8]), base]

    assert_same(run(torch.compile(function), device), run(function, "cpu"))


def test_views_that_return_several(device: torch.device) -> None:
    check_compiled(lambda x: [*x.unbind(-1), *(x + 1).chunk(2, 1), (x * 2)[:, ::2]], device, torch.randn(3, 4))


def test_as_strided(device: torch.device) -> None:
    x = torch.randn(4, 4)
    check_compiled(lambda x: [x.t().as_strided((2, 2), (1, 2)) + 1, x[1:].as_strided((2, 2), (3, 1), 5) * 2], device, x)


def test_as_strided_of_memory_with_gaps(device: torch.device) -> None:
    def every_second(of: Tensor) -> Tensor:
        return of[1::2]

    memory = torch.arange(40.0)
    look = torch.compile(lambda x: [x.as_strided((2, 3), (1, 2), 2) + 1, x * 2], fullgraph=True)
    on_cpu = every_second(memory)
    expected = [on_cpu.as_strided((2, 3), (1, 2), 2) + 1, on_cpu * 2]
    assert_same(look(every_second(memory.to(device))), expected)

    @torch.compile(fullgraph=True)
    def write(x: Tensor) -> Tensor:
        x.as_strided((2, 3), (2, 4), 1).add_(5)
        return x.sum()

    on_device = memory.to(device)
    total = write(every_second(on_device))
    every_second(memory).as_strided((2, 3), (2, 4), 1).add_(5)
    assert_same([total, on_device], [every_second(memory).sum(), memory])


def test_as_strided_of_a_value_with_gaps(device: torch.device) -> None:
    def function(x: Tensor) -> Tensor:
        spread = torch.empty_strided((2, 3), (8, 2), device=x.device).copy_(x)
        return spread.as_strided((3, 2), (2, 8)).sum(1)

    check_compiled(function, device, torch.randn(2, 3), fullgraph=True)


def test_parts_of_a_complex_result(device: torch.device) -> None:
    check_compiled(lambda x: [torch.fft.fft(x).imag, torch.fft.fft(x)[:, 1].real], device, torch.randn(3, 4))


VIEWS: dict[str, Callable[[Tensor], Any]] = {
    "of an input": lambda x: [x[1:], x[:, 2:4], x.t(), x[2]],
    "of a result": lambda x: [(x * 2)[1:], (x * 2)[:, 1:3], (x + 1).t()[2:], (x - 1)[2]],
    "of a result beside it": lambda x: (lambda y: [y, y.view(-1), y[1:], y[:, ::2]])(x * 2),
    "halves": lambda x: [x[: x.shape[0] // 2], x[x.shape[0] // 2 :], *x.chunk(2, 1), *x.hsplit(2)],
    "of an input that is written": lambda x: (x[x.shape[0] // 2 :], x.add_(1))[0],
}


# For changing sizes, results in memory of their own stay padded; only their elements are compared with eager.
@pytest.mark.parametrize(
    ("name", "dynamic"),
    [(name, dynamic) for name in VIEWS for dynamic in (False, True) if not dynamic or name != "of a result"],
)
def test_views_lie_where_eagers_do(name: str, dynamic: bool, device: torch.device) -> None:
    with torch.no_grad():
        check_compiled(VIEWS[name], device, torch.arange(24.0).reshape(4, 6), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_of_inputs_for_several_sizes(dynamic: bool, device: torch.device) -> None:
    compiled = torch.compile(lambda x: x.hsplit(2), dynamic=dynamic)
    for n in (6, 8, 12):
        x = torch.arange(float(n))
        assert_same(compiled(x.to(device)), x.hsplit(2))


def test_outputs_that_share_memory(device: torch.device) -> None:
    def function(x: Tensor) -> list[Tensor]:
        y = x + 1
        return [y, y.view(-1), y[1:]]

    with torch.no_grad():
        actual, expected = torch.compile(function)(torch.zeros(2, 3, device=device)), function(torch.zeros(2, 3))
    for results in (actual, expected):
        results[0].fill_(7)
        results[2].add_(1)
    assert_same(actual, expected)


@pytest.mark.parametrize("dynamic", [False, True])
def test_views_are_written_under_autograd(dynamic: bool, device: torch.device) -> None:
    def function(x: Tensor) -> list[Tensor]:
        y = x * 2
        return [y, y.view(-1), (x * 3)[1:]]

    def run(call: Callable[[Tensor], list[Tensor]], device: torch.device | str) -> list[Tensor]:
        x = torch.arange(6.0).reshape(3, 2).to(device).requires_grad_()
        y, view, part = call(x)
        view.add_(1)
        part.mul_(2)
        (y.square().sum() + part.sum()).backward()
        return [y.detach(), part.detach().clone(), x.grad]

    assert_same(run(torch.compile(function, dynamic=dynamic), device), run(function, "cpu"))


RESIZED = {
    "transposed": torch.arange(16.0).view(4, 4).t(),
    "channels last": torch.arange(16.0).view(1, 4, 2, 2).contiguous(memory_format=torch.channels_last),
    "with gaps": torch.arange(32.0).view(4, 8)[:, ::2].t(),
    "expanded": torch.arange(4.0).expand(4, 4),
    "booleans": torch.arange(16).view(4, 4).t() % 3 == 0,
    "integers": torch.arange(16).view(4, 4).t(),
}
SIZES = ((2, 2), (4, 4), (1, 4, 2, 2), (5, 7), (3,), (0, 2))


@pytest.mark.parametrize("name", RESIZED)
def test_resized_memory(name: str, device: torch.device) -> None:
    """The elements keep their order in memory. In deterministic algorithms new memory has eager's fill."""
    x = RESIZED[name]

    def resized(x: Tensor) -> list[Tensor]:
        results = [torch.ops.aten.resize(x, size) for size in SIZES]
        results.append(torch.ops.aten.resize(x, (1, 4, 3, 2), memory_format=torch.channels_last))
        results.append(torch.ops.aten.resize(x, (1, 2, 2, 2, 3), memory_format=torch.channels_last_3d))
        results.append(torch.ops.aten.resize_as(x, results[-2], memory_format=torch.preserve_format))
        return results

    torch.use_deterministic_algorithms(True)
    try:
        expected = resized(x)
        results = torch.compile(resized, fullgraph=True)(x.to(device))
    finally:
        torch.use_deterministic_algorithms(False)
    assert_same(results, expected)
