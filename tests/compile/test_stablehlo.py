"""`torch.tpu.stablehlo`: the text is that of the call, for both targets, and nothing has run or changed."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchtpu.export
from torch import Tensor, nn
from torchtpu.export import Spec, StableHLO

NAMES = {"f32": torch.float32, "f64": torch.float64, "i64": torch.int64, "i32": torch.int32, "i1": torch.bool}


def types_in(signature: str) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    found = re.findall(r"tensor<((?:\d+x)*)(\w+)>", signature)
    return [(NAMES[dtype], tuple(map(int, dims.split("x")[:-1]))) for dims, dtype in found]


def signature_of(text: str) -> tuple[list[Any], list[Any]]:
    """The types of the inputs and results of `@main`."""
    match = re.search(r"func\.func public @main\((.*)\) -> \((.*)\) \{", text)
    assert match
    return types_in(match[1]), types_in(match[2])


def run(text: str, *inputs: Tensor) -> tuple[Tensor, ...]:
    """Runs the module as an external one."""
    taken, returned = (
        tuple(Spec(f"{kind}{i}", dtype, shape, shape) for i, (dtype, shape) in enumerate(types))
        for kind, types in zip("io", signature_of(text), strict=True)
    )
    return torchtpu.export.serve.Program(StableHLO(text, taken, returned, {}))(*inputs)


def normalized(x: Tensor) -> Tensor:
    return (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True)


def test_the_text_computes_what_the_function_does(device: torch.device) -> None:
    x = torch.randn(4, 6, device=device)
    for target in ("cpu", None):
        text = torch.tpu.stablehlo(normalized, x, target=target)
        assert text.startswith("module @torchtpu {")
        torch.testing.assert_close(run(text, x), (normalized(x),))


def test_targets_differ_where_their_compilers_do(device: torch.device) -> None:
    x = torch.randn(4, 6, device=device)
    forms = [torch.tpu.stablehlo(torch.amax, x, 1, target=target) for target in ("cpu", "tpu")]
    assert forms[0] != forms[1]
    assert "stablehlo.reduce" in forms[1]
    double = x.double()
    assert "stablehlo.fft" in torch.tpu.stablehlo(torch.fft.fft, double, target="cpu")
    with pytest.raises(NotImplementedError, match="TPUs have no Fourier transforms in double precision"):
        torch.tpu.stablehlo(torch.fft.fft, double, target="tpu")


def test_a_function_that_writes_its_argument(device: torch.device) -> None:
    x = torch.arange(6.0, device=device)
    before = torch.tpu.cache_stats()["requests"]

    def add(x: Tensor) -> Tensor:
        x[1:3].add_(10)
        return x.sum()

    text = torch.tpu.stablehlo(add, x)
    assert torch.tpu.cache_stats()["requests"] == before
    written, total = run(text, x)
    torch.testing.assert_close(x.cpu(), torch.arange(6.0))
    torch.testing.assert_close(add(x), total)
    torch.testing.assert_close(x, written)


def test_a_model_in_training(device: torch.device) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2)).to(device)
    x = torch.randn(5, 4, device=device)
    kept = {name: value.cpu().clone() for name, value in model.state_dict().items()}
    state = torch.tpu.get_rng_state()
    for target in ("cpu", "tpu"):
        text = torch.tpu.stablehlo(model, x, target=target)
        assert text.count("stablehlo.dot_general") == 2
        assert re.search(r"%random: tensor<2xui64>\) ->", text)
    assert torch.equal(torch.tpu.get_rng_state(), state)
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value.cpu(), kept[name], msg=name)


def test_a_model_in_evaluation(device: torch.device) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3)).to(device).eval()
    x = torch.randn(2, 1, 4, 4, device=device)
    with torch.no_grad():
        text = torch.tpu.stablehlo(model, x)
        parameters = [*model.parameters()]
        expected = model(x)
    inputs = [*parameters, x]
    taken, _ = signature_of(text)
    assert sorted(shape for _, shape in taken) == sorted(tuple(each.shape) for each in inputs)
    ordered = [next(each for each in inputs if tuple(each.shape) == shape) for _, shape in taken]
    torch.testing.assert_close(run(text, *ordered), (expected,))


def test_views_and_keyword_arguments(device: torch.device) -> None:
    x = torch.randn(4, 6, device=device)
    text = torch.tpu.stablehlo(torch.sum, x.t()[1:4], dim=1)
    torch.testing.assert_close(run(text, x.t()[1:4].contiguous()), (x.t()[1:4].sum(dim=1),))


def test_it_can_be_asked_many_times(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    texts = {torch.tpu.stablehlo(lambda x, n=n: x * n, x) for n in range(20)}
    assert len(texts) == 20
    assert torch.tpu.stablehlo(torch.exp, x) == torch.tpu.stablehlo(torch.exp, x)


def branches(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x


def on_the_host(x: Tensor) -> Tensor:
    return (x.cpu() + 1).to(x.device)


def breaks(x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return x + 1


@pytest.mark.parametrize("function", [branches, breaks])
def test_a_call_that_is_not_one_program(device: torch.device, function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(RuntimeError, match="the call cannot be traced as one program"):
        torch.tpu.stablehlo(function, torch.ones(3, device=device))


def test_a_call_with_a_part_on_the_host(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="runs on the host or on another device"):
        torch.tpu.stablehlo(on_the_host, torch.ones(3, device=device))


def test_bad_arguments(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    with pytest.raises(TypeError, match="takes a function or a module, not Tensor"):
        torch.tpu.stablehlo(x)
    wrong: Any = "gpu"
    with pytest.raises(ValueError, match="target must be 'cpu' or 'tpu', not 'gpu'"):
        torch.tpu.stablehlo(torch.exp, x, target=wrong)
    with pytest.raises(ValueError, match="no tensor of the call is on the device 'tpu'"):
        torch.tpu.stablehlo(torch.exp, torch.ones(3))
    with pytest.raises(ValueError, match="computes nothing"):
        torch.tpu.stablehlo(lambda: 3)
    with pytest.raises(RuntimeError, match="Mismatching argument"):
        torch.tpu.stablehlo(torch.add, x, torch.ones(4, device=device))
