"""A mode that a context sets belongs to its thread, and to the autograd threads that work for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def strict() -> None:
    torch.tpu.set_eager_mode("strict")


def in_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


def mode() -> str:
    return torch.tpu.eager_mode.name


def test_a_context_sets_the_mode_of_its_thread_only() -> None:
    with torch.tpu.set_eager_mode("fused"):
        assert (mode(), in_thread(mode)) == ("FUSED", "STRICT")
        torch.tpu.set_eager_mode("debug")  # of the process: threads in no context
        assert (mode(), in_thread(mode)) == ("FUSED", "DEBUG")
    assert (mode(), in_thread(mode)) == ("DEBUG", "DEBUG")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2), (1, 2, 0)])
def test_contexts_of_a_thread_end_in_any_order(order: tuple[int, ...]) -> None:
    contexts = [torch.tpu.set_eager_mode(name) for name in ("fused", "debug", "fused")]
    for context in contexts:
        context.__enter__()
    assert (mode(), in_thread(mode)) == ("FUSED", "STRICT")
    for last in order:
        contexts[last].__exit__(None, None, None)
    assert mode() == "STRICT"


def test_contexts_nest_and_one_may_be_entered_twice() -> None:
    outer = torch.tpu.set_eager_mode("debug")
    with outer:
        with torch.tpu.set_eager_mode("fused"), outer:
            assert mode() == "DEBUG"
        assert mode() == "DEBUG"
    assert mode() == "STRICT"


def test_threads_with_modes_of_their_own_at_once(device: torch.device) -> None:
    shared = torch.arange(8.0, device=device)
    barrier = threading.Barrier(4)
    names = ("fused", "debug", "strict", "fused")

    def work(name: str) -> tuple[list[float], set[str]]:
        barrier.wait()
        own, seen = torch.zeros(8, device=device), set()
        for i in range(40):
            with torch.tpu.set_eager_mode(name):
                seen.add(mode())
                own = (own + shared * i).clone()
                own[i % 8] += 1
        return own.tolist(), seen

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(work, names))
    expected = (torch.arange(8.0) * sum(range(40)) + 5).tolist()
    assert [values for values, _ in results] == [expected] * 4
    assert [seen for _, seen in results] == [{name.upper()} for name in names]
    assert mode() == "STRICT"


def test_a_strict_thread_does_not_cut_the_program_of_a_fused_one(device: torch.device) -> None:
    x, y = torch.arange(5.0, device=device), torch.arange(3.0, device=device)
    torch.tpu.synchronize()

    def strict_work() -> torch.Tensor:
        return y * 3

    with torch.tpu.explain() as explanation, torch.tpu.set_eager_mode("fused"):
        z = x + 1
        other = in_thread(strict_work)
        z = z * 2
        values = z.tolist()
    assert (values, other.tolist()) == ([2.0, 4.0, 6.0, 8.0, 10.0], [0.0, 3.0, 6.0])
    assert [len(program["operators"]) for program in explanation.programs] == [1, 2]


def test_a_strict_thread_takes_what_a_fused_one_has_recorded(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("fused"):
        z = torch.arange(5.0, device=device) + 1
        in_thread(lambda: z.mul_(3))
        z += 1
        assert z.tolist() == [4.0, 7.0, 10.0, 13.0, 16.0]


class Square(torch.autograd.Function):
    seen: str = ""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        Square.seen = mode()
        return 2 * ctx.saved_tensors[0] * gradient


@pytest.mark.parametrize("name", ["debug", "fused"])
def test_the_threads_of_autograd_have_the_mode_of_backward(name: str, device: torch.device) -> None:
    x = torch.arange(4.0, device=device, requires_grad=True)
    with torch.tpu.set_eager_mode(name):
        Square.apply(x).sum().backward()
    assert Square.seen == name.upper()
    assert x.grad.tolist() == [0.0, 2.0, 4.0, 6.0]
    Square.apply(x).sum().backward()
    assert Square.seen == "STRICT"


def test_a_mode_within_a_step_that_is_one_program(device: torch.device) -> None:
    x = torch.arange(4.0, device=device)

    @torch.tpu.compile_step
    def step(x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        with torch.tpu.set_eager_mode("debug"):
            y = y * 2
        return y - 1

    for name in ("strict", "fused"):
        with torch.tpu.set_eager_mode(name):
            assert step(x).tolist() == [1.0, 3.0, 5.0, 7.0]


def test_an_error_of_debug_is_raised_in_its_thread_only(device: torch.device) -> None:
    x, index = torch.arange(4.0, device=device), torch.tensor([9], device=device)

    def debug_work() -> None:
        with torch.tpu.set_eager_mode("debug"), pytest.raises(IndexError):
            x[index]

    in_thread(debug_work)
    late = x[index]
    with pytest.raises(IndexError):
        late.tolist()
    assert (x + 1).tolist() == [1.0, 2.0, 3.0, 4.0]
