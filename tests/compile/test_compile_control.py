"""Higher-order operators in compiled graphs: control flow, attention with functions, regions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check_compiled

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def check_one_program(function: Callable[..., Any], device: torch.device, *inputs: Tensor, backend: str) -> None:
    """One program computes the same as the backend on the CPU, and its gradients, if any."""

    def run(backend: str, device: torch.device | str) -> tuple[list[Tensor], list[Tensor]]:
        moved = [each.to(device) for each in inputs]
        needed = [each.requires_grad_() for each in moved if each.is_floating_point()]
        results = torch.compile(function, fullgraph=True, backend=backend)(*moved)
        results = [results] if isinstance(results, Tensor) else list(results)
        differentiable = [each.sum() for each in results if each.requires_grad]
        gradients = torch.autograd.grad(sum(differentiable), needed) if differentiable else ()
        return [each.detach().cpu() for each in results], [each.cpu() for each in gradients]

    expected = run(backend, "cpu")
    torch._dynamo.reset()
    torch.testing.assert_close(run("tpu", device), expected, rtol=1e-4, atol=1e-5)
    moved = [each.detach().to(device) for each in inputs]
    compiled = torch.compile(function, fullgraph=True)
    compiled(*moved)
    torch.tpu.reset_cache_stats()
    compiled(*moved)
    assert torch.tpu.cache_stats()["requests"] == 1


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_cond(sign: float, device: torch.device) -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        return torch.cond(x.sum() > 0, lambda x: ((x @ w).sin(), x.sum()), lambda x: (x.cos() @ w, x.mean()), (x,))

    check_one_program(function, device, sign * torch.rand(3, 3), torch.randn(3, 3), backend="aot_eager")


@pytest.mark.parametrize("dynamic", [None, True])
def test_cond_of_sizes(dynamic: bool | None, device: torch.device) -> None:
    """The condition is a number that the host knows, not a tensor."""

    def function(x: Tensor, index: int) -> tuple[Tensor, ...]:
        size = x.shape[0]
        return torch.cond(
            size > 4 and index < 20, lambda x: (x.sin() * size, x.sum()), lambda x: (x + size, x.mean()), (x,)
        )

    compiled = torch.compile(function, dynamic=dynamic, fullgraph=True)
    for size, index in ((3, 1), (5, 1), (9, 30), (30, 4), (2, 30)):
        on_cpu = torch.randn(size, requires_grad=True)
        on_device = on_cpu.detach().to(device).requires_grad_()
        results, expected = compiled(on_device, index), function(on_cpu, index)
        torch.testing.assert_close([each.detach().cpu() for each in results], [each.detach() for each in expected])
        for given in (results, expected):
            (given[0].sum() + given[1]).backward()
        torch.testing.assert_close(on_device.grad.cpu(), on_cpu.grad)


def test_while_loop(device: torch.device) -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def function(limit: Tensor, x: Tensor) -> tuple[Tensor, ...]:
        start = torch.zeros((), dtype=torch.int64, device=x.device)
        return while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, x * 2 + i), (start, x))

    with torch.no_grad():
        for limit in (0, 5):
            check_one_program(function, device, torch.tensor(limit), torch.arange(6), backend="eager")


def test_scan(device: torch.device) -> None:
    from torch._higher_order_ops.scan import scan

    def function(init: Tensor, xs: Tensor) -> tuple[Tensor, ...]:
        return scan(lambda carry, x: ((carry + x).sin(), carry * x.sum()), init, xs, dim=0)

    check_one_program(function, device, torch.randn(3), torch.randn(5, 3), backend="aot_eager")


def test_associative_scan(device: torch.device) -> None:
    from torch._higher_order_ops.associative_scan import associative_scan

    def function(xs: Tensor) -> Tensor:
        return associative_scan(lambda a, b: a * b + a, xs.detach(), 0, combine_mode="generic")

    check_one_program(function, device, torch.randn(7, 3), backend="eager")


def test_flex_attention(device: torch.device) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = (torch.randn(1, 2, 128, 8) for _ in range(3))
    slopes = torch.tensor([0.1, 0.2])
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128, device=device)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return flex_attention(q, k, v, score_mod=lambda s, b, h, i, j: s + on_device[h] * (j - i), block_mask=mask)

    def expected(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        i, j = torch.arange(128)[:, None], torch.arange(128)
        scores = q @ k.transpose(-1, -2) / 8**0.5 + slopes[:, None, None] * (j - i)
        return scores.masked_fill(i < j, float("-inf")).softmax(-1) @ v

    on_device = slopes.to(device)
    results = []
    for call, place in ((expected, "cpu"), (torch.compile(function, fullgraph=True), device), (function, device)):
        moved = [each.detach().clone().to(place).requires_grad_() for each in (q, k, v)]
        y = call(*moved)
        y.square().sum().backward()
        results.append([y.detach().cpu(), *[each.grad.cpu() for each in moved]])
    torch.testing.assert_close(results[1], results[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(results[2], results[0], rtol=1e-3, atol=1e-4)


def test_regions_compiled_once(device: torch.device) -> None:
    layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3)).to(device)

    @torch.compiler.nested_compile_region
    def block(layer: nn.Module, x: Tensor) -> Tensor:
        return layer(x).tanh()

    def function(x: Tensor) -> Tensor:
        for layer in layers:
            x = block(layer, x)
        return x.sum()

    gradients = []
    for call in (function, torch.compile(function, fullgraph=True)):
        x = torch.ones(2, 4, device=device, requires_grad=True)
        call(x).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("dynamic", [False, True])
def test_flex_attention_on_the_cpu_is_left_alone(dynamic: bool) -> None:
    from torch.nn.attention.flex_attention import flex_attention

    q, k, v = (torch.randn(1, 2, 8, 4) for _ in range(3))
    compiled = torch.compile(flex_attention, backend="aot_eager", fullgraph=True, dynamic=dynamic)
    torch.testing.assert_close(compiled(q, k, v), torch.nn.functional.scaled_dot_product_attention(q, k, v))
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(q.requires_grad_(), k, v)


@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_that_loops_carry(dynamic: bool, device: torch.device) -> None:
    from torch._higher_order_ops.while_loop import while_loop

    def function(x: Tensor, start: int, steps: int) -> tuple[Any, ...]:
        table = torch.arange(8, device=x.device)
        end, y = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x * 2 + table[i] + i), (start, x))
        return end, y + end, while_loop(lambda i, x: i < steps, lambda i, x: (i + 2, x + i), (0, y))

    check_compiled(function, device, torch.ones(2), 1, 4, fullgraph=True, dynamic=dynamic)
    check_compiled(function, device, torch.ones(2), 3, 6, fullgraph=True, dynamic=dynamic)


def test_numbers_that_the_data_decide(device: torch.device) -> None:
    def function(x: Tensor, start: Tensor) -> list[Tensor]:
        number = start.item()
        return [x.narrow(1, number, 3) * 2 + number, x.narrow(1, number, 3), x.roll(number) + 1]

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check_compiled(function, device, torch.arange(24.0).reshape(4, 6), torch.tensor(2), fullgraph=True)
    check_compiled(lambda x, start: x.narrow(1, start, 3) * 2, device, torch.randn(4, 6), torch.tensor(1))
