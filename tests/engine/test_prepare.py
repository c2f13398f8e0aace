"""A compiled graph's program that is made in the background, before a call needs it."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torchtpu.vllm.programs import traced

from tests.helpers import programs_made


def ready(prepared: Any) -> None:
    deadline = time.monotonic() + 60
    while not prepared.is_ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_call_uses_the_program(device: torch.device) -> None:
    """Also where the graph writes an input, whose memory the program takes over."""
    cache, added = torch.arange(6000.0), torch.rand(6000)
    on_device = [cache.to(device), added.to(device)]

    def function(cache: torch.Tensor, added: torch.Tensor) -> list[torch.Tensor]:
        cache.add_(added)
        return [cache * 3, added.sum()]

    run: Any = traced(function, on_device, "a sum")
    before = programs_made()
    prepared = run.prepare(on_device)
    ready(prepared)
    assert programs_made() == before + 1
    torch.testing.assert_close(on_device[0].cpu(), cache)
    with torch.tpu.explain() as explanation:
        first = run(on_device)
        second = run(on_device)
        first, second = ([each.cpu() for each in results] for results in (first, second))
    assert programs_made() == before + 1
    assert len(explanation.runs) == 2
    torch.testing.assert_close(first, [(cache + added) * 3, added.sum()])
    torch.testing.assert_close(second, [(cache + added + added) * 3, added.sum()])


def test_a_call_that_comes_first_waits_for_it(device: torch.device) -> None:
    given = [torch.rand(7001).to(device)]
    run: Any = traced(lambda x: [x.sort()[0].cumsum(0)], given, "a sorted sum")
    before = programs_made()
    prepared = run.prepare(given)
    found = run(given)[0].cpu()
    assert programs_made() == before + 1
    assert prepared.is_ready()
    torch.testing.assert_close(found, given[0].cpu().sort()[0].cumsum(0))


def test_wrong_inputs_are_refused(device: torch.device) -> None:
    given = [torch.rand(5).to(device)]
    run: Any = traced(lambda x: [x + 1], given, "a sum")
    with pytest.raises(TypeError, match="takes a tensor as input 0"):
        run.prepare([5])
    with pytest.raises(RuntimeError, match="takes 1 inputs, not 2"):
        run.prepare(given * 2)


def test_bounded_sizes_are_refused(device: torch.device) -> None:
    """Their program is made by the first call, and serves all sizes."""
    from torch._functorch.aot_autograd import aot_function
    from torchtpu import _C
    from torchtpu.compile import segments

    runs: list[Any] = []

    def compiler(module: Any, _: Any) -> Any:
        runs.append(segments.compile_graph(module, "a sum", frozenset(_C.table()), ()))
        return runs[-1]

    with torch.no_grad():
        aot_function(lambda x: [x + 1], compiler, inference_compiler=compiler, dynamic=True)(torch.rand(5).to(device))
    assert runs[0].prepare is None
