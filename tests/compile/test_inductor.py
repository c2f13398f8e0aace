"""torch.compile(backend="inductor") by name, and inductor's options."""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._inductor import config
from torchtpu.compile import options as compile_options


@pytest.fixture(autouse=True)
def _reset() -> Iterator[None]:
    yield
    torch._dynamo.reset()


def _without_warnings(*args: Any, **kwargs: Any) -> Callable[..., Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.compile(*args, **kwargs)


def _train(backend: str, device: torch.device, **kwargs: Any) -> list[torch.Tensor]:
    torch.manual_seed(3)
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.4), torch.nn.GELU(), torch.nn.Linear(8, 2))
    model.to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    compiled = torch.compile(model, backend=backend, fullgraph=True, **kwargs)
    losses = []
    for _ in range(3):
        loss = compiled(torch.randn(5, 6, device=device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(parameter.detach() for parameter in model.parameters())]


def test_the_function_that_is_replaced() -> None:
    # The name "inductor" and torch.compile's wrapper of it both call this. If this fails with a new PyTorch, graphs
    # with tpu tensors reach inductor: see python/torchtpu/compile/inductor.py.
    from torch._inductor import compile_fx

    assert compile_fx.compile_fx.__wrapped__.__module__ == "torch._inductor.compile_fx"
    assert "compile_fx" in torch._TorchCompileInductorWrapper.__call__.__code__.co_names


def test_training_is_that_of_the_backend_tpu(device: torch.device) -> None:
    by_name, expected = _train("inductor", device), _train("tpu", device)
    for one, other in zip(by_name, expected, strict=True):
        assert torch.equal(one, other)


def test_programs_are_those_of_the_backend_tpu(device: torch.device) -> None:
    x = torch.ones(3, 5, device=device)
    function = lambda x: torch.softmax(x * 3, 0) + torch.arange(5, device=x.device)  # noqa: E731
    made = []
    for backend in ("tpu", "inductor"):
        torch._dynamo.reset()
        before = torch.tpu.cache_stats()
        torch.compile(function, backend=backend)(x)
        after = torch.tpu.cache_stats()
        made.append([after[name] - before[name] for name in ("compiles", "requests")])
    assert made[0][1] == made[1][1] == 1
    assert made[1][0] == 0  # the same text, so the same program


def test_factories_make_it_a_tpu_graph(device: torch.device) -> None:
    function = torch.compile(lambda n: torch.arange(n, device=device) * 2, backend="inductor", fullgraph=True)
    assert function(4).tolist() == [0, 2, 4, 6]


def test_sizes_change(device: torch.device) -> None:
    function = torch.compile(lambda x: (x + 1).sum(0), backend="inductor", dynamic=True)
    inputs = [torch.ones(n, 2, device=device) for n in (5, 6, 7, 8)]
    torch.tpu.reset_cache_stats()
    assert [function(x)[0].item() for x in inputs] == [10.0, 12.0, 14.0, 16.0]
    assert torch.tpu.cache_stats()["compiles"] <= 2  # one for all sizes, and one for reading an element


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes(mode: str, device: torch.device) -> None:
    function = _without_warnings(lambda x: x + 1, backend="inductor", mode=mode)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert function(torch.ones(2, device=device)).tolist() == [2.0, 2.0]


@pytest.mark.parametrize("backend", ["inductor", "tpu"])
def test_options_have_no_effect_and_a_warning_says_so_once(
    backend: str, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compile_options, "_said", set())
    x = torch.ones(2, device=device)
    options = {"max_autotune": True, "coordinate_descent_tuning": True, "triton.cudagraphs": False}
    with pytest.warns(UserWarning, match=r"no effect .*coordinate_descent_tuning, max_autotune, triton.cudagraphs"):
        assert torch.compile(lambda x: x + 1, backend=backend, options=options)(x).tolist() == [2.0, 2.0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.compile(lambda x: x + 2, backend=backend, options=options)(x).tolist() == [3.0, 3.0]


def test_cpu_graphs_stay_inductors(device: torch.device) -> None:
    torch._dynamo.utils.counters.clear()
    before = torch.tpu.op_stats()["operators"]
    function = torch.compile(lambda x: torch.sin(x) + 1, backend="inductor", options={"epilogue_fusion": True})
    torch.testing.assert_close(function(torch.ones(3)), torch.sin(torch.ones(3)) + 1)
    assert torch.tpu.op_stats()["operators"] == before
    assert torch._dynamo.utils.counters["aot_autograd"]["ok"] == 1
    assert "inductor" in torch._dynamo.utils.counters


@pytest.mark.skipif(importlib.util.find_spec("jax") is not None, reason="the refusal is for want of JAX")
@pytest.mark.parametrize("by", ["option", "config"])
def test_pallas_kernels_are_inductors(by: str, device: torch.device) -> None:
    x = torch.ones(3, device=device)
    options = {"tpu_backend": "pallas"} if by == "option" else None
    function = torch.compile(lambda x: x + 1, backend="inductor", options=options)
    patched = config.patch(tpu_backend="pallas") if by == "config" else contextlib.nullcontext()
    # Inductor's code needs JAX.
    with patched, pytest.raises(Exception, match="jax"):
        function(x)


def test_inductors_own_entry(device: torch.device) -> None:
    graph = torch.fx.symbolic_trace(lambda x: (x + 1,))
    compiled = torch._inductor.compile(graph, [torch.ones(2, device=device)])
    assert compiled(torch.ones(2, device=device))[0].tolist() == [2.0, 2.0]


def test_a_package_of_aotinductor_is_refused(device: torch.device) -> None:
    program = torch.export.export(torch.nn.Linear(2, 2).to(device), (torch.ones(1, 2, device=device),))
    with pytest.raises(NotImplementedError, match=r"torchtpu\.export\.to_stablehlo"):
        torch._inductor.aoti_compile_and_package(program)
