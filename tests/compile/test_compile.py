"""`torch.compile` on tpu tensors gives the same results as eager on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.helpers import assert_same, check_compiled, check_python, check_started_python, moved, programs_made
from tests.small_models import TASKS

STEPS = 10

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


# ---- models ------------------------------------------------------------------------------------------------------


def _train(task: str, device: torch.device | str, how: str) -> Tensor:
    torch.manual_seed(0)
    model = TASKS[task].model().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    forward = torch.compile(model) if how == "model" else model

    def step(inputs: Any, target: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = TASKS[task].loss(forward(*inputs), target)
        loss.backward()
        optimizer.step()
        return loss.detach()

    step = torch.tpu.compile_step(step) if how == "step" else step
    losses = []
    for i in range(STEPS):
        torch.random.default_generator.manual_seed(i % 3)
        inputs, target = TASKS[task].batch()
        losses.append(step(moved(inputs, device), target.to(device)))
    return torch.stack(losses).cpu()


# Dynamo takes seconds for each; the others are slow tests.
QUICK = (("mlp", "model"), ("gpt", "step"), ("resnet", "step"), ("lstm", "model"), ("dlrm", "step"))
TRAININGS = [
    pytest.param(task, how, marks=() if (task, how) in QUICK else pytest.mark.slow)
    for task in TASKS
    for how in ("model", "step")
]


@pytest.mark.parametrize(("task", "how"), TRAININGS)
def test_trains_as_on_cpu(task: str, how: str, device: torch.device) -> None:
    torch.testing.assert_close(_train(task, device, how), _train(task, "cpu", "eager"), rtol=1e-3, atol=1e-4)


def test_eager_modes_around_a_compiled_call(mode: str, device: torch.device) -> None:
    def function(x: Tensor) -> Tensor:
        x.mul_(2)
        return x.sin() @ x

    compiled = torch.compile(function)

    def run(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
        for _ in range(3):
            x = call(x + 1) / 10
        return x

    x = torch.randn(4, 4)
    torch.testing.assert_close(run(compiled, x.to(device)).cpu(), run(function, x))


# ---- inputs and outputs ------------------------------------------------------------------------------------------


def test_mutated_inputs(device: torch.device) -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        y[0] = 3
        x[:, 1].mul_(2)
        return x * 2

    check_compiled(function, device, torch.randn(4, 4), torch.randn(4, 4))


def test_mutation_happens_in_place(device: torch.device) -> None:
    x = torch.zeros(1 << 20, device=device)
    torch.compile(lambda x: x.add_(1))(x)
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    torch.compile(lambda x: x.add_(1))(x)
    assert torch.tpu.memory_allocated() == before
    assert x[0].item() == 2


def test_layouts(device: torch.device) -> None:
    x = torch.randn(2, 3, 4, 5)
    check_compiled(lambda x: [x + 1, x.relu(), F.avg_pool2d(x, 2)], device, x.to(memory_format=torch.channels_last))
    check_compiled(lambda x: [x + 1, x.sum(0), x.reshape(-1)], device, x.permute(2, 0, 3, 1))


def test_module_state(device: torch.device) -> None:
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.count += x.sum()
            self.calls += 1
            return x * self.count[0] + self.calls

    module, expected = Counter().to(device), Counter()
    compiled = torch.compile(module)
    for i in range(3):
        assert_same(compiled(torch.full((2,), float(i), device=device)), expected(torch.full((2,), float(i))))
    assert_same(module.count, expected.count)


def test_numbers_are_inputs(device: torch.device) -> None:
    compiled = torch.compile(lambda x, number, tensor: x * number + tensor)
    x = torch.ones(3, device=device)
    for i in range(4):
        if i == 2:
            before = programs_made()
        assert compiled(x, 0.5 + i, torch.tensor(2.0 + i)).tolist() == [2.5 + 2 * i] * 3
    assert programs_made() == before


def test_empty_and_zero_dim(device: torch.device) -> None:
    check_compiled(
        lambda x, y: [x.sum(0), x * 2, y + 1, torch.cat([x, x])], device, torch.ones(0, 3), torch.tensor(2.0)
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64, torch.int32, torch.complex64, torch.bool])
def test_dtypes(dtype: torch.dtype, device: torch.device) -> None:
    x = torch.tensor([[1, 2], [0, 4]]).to(dtype)
    check_compiled(lambda x: [x * x, x.to(torch.float32 if not x.is_complex() else x.dtype).mean(), x == 1], device, x)


# ---- gradients ---------------------------------------------------------------------------------------------------


def test_gradients(device: torch.device) -> None:
    def gradients(call: Callable[[Tensor, Tensor], Tensor], device: torch.device | str) -> list[Tensor]:
        torch.random.default_generator.manual_seed(1)
        x, w = (torch.randn(4, 4).to(device).requires_grad_() for _ in range(2))
        y = call(x, w)
        y.backward(retain_graph=True)
        y.backward()
        return [y.detach().cpu(), x.grad.cpu(), w.grad.cpu()]

    def function(x: Tensor, w: Tensor) -> Tensor:
        return (F.layer_norm(x @ w, (4,)).tanh() * x.std()).square().sum()

    assert_same(gradients(torch.compile(function), device), gradients(function, "cpu"))


def test_no_grad_and_inference_mode(device: torch.device) -> None:
    module = nn.Linear(4, 4).to(device)
    compiled = torch.compile(module)
    x = torch.ones(2, 4, device=device)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    with torch.inference_mode():
        inferred = compiled(x)
        assert inferred.is_inference()
    torch.testing.assert_close(inferred.cpu(), module(x).detach().cpu())


def test_autocast(device: torch.device) -> None:
    module = nn.Sequential(nn.Linear(8, 8), nn.LayerNorm(8), nn.Linear(8, 8)).to(device)

    def function(x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, torch.bfloat16):
            return module(x)

    x = torch.randn(4, 8, device=device)
    expected, actual = function(x), torch.compile(function)(x)
    assert actual.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(actual.cpu(), expected.cpu(), rtol=2e-2, atol=2e-2)


# ---- random numbers ----------------------------------------------------------------------------------------------


def test_random_numbers_are_those_of_eager(device: torch.device) -> None:
    def function(x: Tensor) -> Tensor:
        return F.dropout(x, 0.3) + torch.rand_like(x) * torch.randn(4, 1, device=x.device)

    compiled = torch.compile(function)
    x = torch.ones(4, 16, device=device)
    results = []
    for call in (function, compiled):
        torch.manual_seed(7)
        results.append([call(x), call(x), torch.rand(3, device=device)])
    assert not torch.equal(results[1][0], results[1][1])
    torch.testing.assert_close(results[1], results[0])


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_repeats_random_numbers(reentrant: bool, device: torch.device) -> None:
    linear = nn.Linear(8, 8).to(device)

    def block(x: Tensor) -> Tensor:
        return F.dropout(torch.relu(linear(x)), 0.5)

    def function(x: Tensor) -> Tensor:
        return checkpoint(block, checkpoint(block, x, use_reentrant=reentrant), use_reentrant=reentrant).sum()

    gradients = []
    for call in (function, torch.compile(function)):
        x = torch.ones(8, 8, device=device, requires_grad=True)
        torch.manual_seed(3)
        call(x).backward()
        gradients.append([x.grad, torch.rand(2, device=device)])
    torch.testing.assert_close(gradients[1], gradients[0])


# ---- graphs ------------------------------------------------------------------------------------------------------


def test_graph_breaks(device: torch.device) -> None:
    def function(x: Tensor) -> list[float]:
        y = x + 1
        if y.sum() > 0:
            y = y * 2
        torch._dynamo.graph_break()
        return (y - 1).tolist()

    x = torch.ones(2, device=device)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(function, fullgraph=True)(x)
    assert torch.compile(function)(x) == [3.0, 3.0]


def test_work_of_the_host_within_a_graph(device: torch.device) -> None:
    def function(x: Tensor) -> list[Tensor]:
        on_host = (x * 3).cpu() * 2
        return [on_host.sum(), on_host.to(x.device) + x, torch.arange(4) + 1, x + torch.tensor(2.0)]

    compiled = torch.compile(function, fullgraph=True)
    x = torch.randn(4)
    actual = compiled(x.to(device))
    assert [each.device.type for each in actual] == ["cpu", "tpu", "cpu", "tpu"]
    torch.testing.assert_close([each.cpu() for each in actual], function(x))


def test_sizes_that_the_data_decide(device: torch.device) -> None:
    compiled = torch.compile(lambda x: (x.nonzero() * 2).sum() + x[x > 1].sum(), fullgraph=True)
    assert compiled(torch.tensor([0.0, 1, 2], device=device)).item() == 8
    assert compiled(torch.tensor([3.0, 1, 2], device=device)).item() == 11


CHECKED: dict[str, Callable[[Tensor], Tensor]] = {
    "nonzero": lambda x: x.nonzero(),
    "index": lambda x: x[x > 0],
    "masked_select": lambda x: torch.masked_select(x, x > 0),
    "repeat_interleave": lambda x: torch.repeat_interleave((x > 0).long()),
}


@pytest.mark.parametrize("name", CHECKED)
def test_sizes_that_a_check_fixes(name: str, device: torch.device) -> None:
    def function(x: Tensor) -> Tensor:
        found = CHECKED[name](x)
        torch._check(found.size(0) == 3)
        return found * 2

    compiled = torch.compile(function, fullgraph=True)
    x = torch.tensor([0, 4, 0, 1, 2])
    torch.testing.assert_close(compiled(x.to(device)).cpu(), function(x))
    with pytest.raises(RuntimeError, match="assertion failed"):
        compiled(torch.tensor([0, 0, 0, 0, 3], device=device))
    torch.testing.assert_close(compiled(x.to(device)).cpu(), function(x))


def test_checks_in_a_decomposition(device: torch.device) -> None:
    check_compiled(lambda x: [*torch.histogram(x, 3)], device, torch.randn(20), fullgraph=True)
    check_compiled(lambda x: [torch.histogramdd(x, [3, 2])[0]], device, torch.randn(20, 2), fullgraph=True)


def test_several_devices() -> None:
    code = """
import torch
compiled = torch.compile(lambda x: x.sin() + 1)
first, second = (compiled(torch.full((2,), float(i), device=f"tpu:{i}")) for i in range(2))
assert (first.device.index, second.device.index) == (0, 1)
torch.testing.assert_close(second.cpu(), torch.full((2,), 1.0).sin() + 1)
across = torch.compile(lambda x, y: (x + 1).to("tpu:1") * y, fullgraph=True)
result = across(torch.ones(2, device="tpu:0"), torch.ones(2, device="tpu:1"))
print(result.device, result.tolist())
"""
    assert check_python(code, TORCHTPU_NUM_DEVICES="2").strip() == "tpu:1 [2.0, 2.0]"


def test_dynamic_shapes(device: torch.device) -> None:
    always = torch.compile(lambda x: (x * 2).sum(0) + x.shape[0] + x.numel() // 2, dynamic=True)
    later = torch.compile(lambda x: (x @ x.t()).softmax(-1).sum())
    marked = torch.compile(lambda x: x.cumsum(0)[-1])
    for n in (3, 5, 7, 2):
        x = torch.ones(n, 2, device=device)
        assert always(x).tolist() == [4.0 * n] * 2
        assert later(x).item() == pytest.approx(n)
        torch._dynamo.mark_dynamic(x, 0)
        if n > 2:
            assert marked(x).tolist() == [n] * 2


def test_dynamic_shapes_have_gradients(device: torch.device) -> None:
    compiled = torch.compile(lambda x, w: (x @ w).square().mean(), dynamic=True)
    for n in (3, 5, 8):
        x, w = torch.randn(n, 4), torch.randn(4, 4)
        expected = w.clone().requires_grad_()
        (x @ expected).square().mean().backward()
        actual = w.to(device).requires_grad_()
        compiled(x.to(device), actual).backward()
        torch.testing.assert_close(actual.grad.cpu(), expected.grad)


def test_custom_operators(device: torch.device) -> None:
    with torch.library._scoped_library("torchtpu_test", "FRAGMENT"):

        @torch.library.custom_op("torchtpu_test::tripled", mutates_args=())
        def tripled(x: Tensor) -> Tensor:
            return torch.from_numpy(x.cpu().numpy() * 3).to(x.device)

        @tripled.register_fake
        def _(x: Tensor) -> Tensor:
            return torch.empty_like(x)

        compiled = torch.compile(lambda x: tripled(x + 1) * 2, fullgraph=True)
        assert compiled(torch.ones(2, device=device)).tolist() == [12.0, 12.0]


def test_large_constants(device: torch.device) -> None:
    weights = list(range(2000))

    def function(x: Tensor) -> list[Tensor]:
        constant = torch.tensor(weights, device=x.device, dtype=x.dtype)
        return [x * constant, x * torch.tensor([1j, 2], device=x.device)[1]]

    check_compiled(function, device, torch.randn(3, 2000), fullgraph=True)


# ---- the backend -------------------------------------------------------------------------------------------------


def test_is_the_default_for_tpu_tensors_only(device: torch.device) -> None:
    assert torch.compiler.get_default_backend() == "tpu"
    assert "tpu" in torch.compiler.list_backends()
    ones = torch.ones(2, device=device)
    before = torch.tpu.cache_stats()["requests"]
    assert torch.compile(lambda x: x + 1)(torch.ones(2)).tolist() == [2.0, 2.0]
    assert torch.compile(lambda x: x + 2, options={"epilogue_fusion": True})(torch.ones(2)).tolist() == [3.0, 3.0]
    assert torch.tpu.cache_stats()["requests"] == before
    torch.compile(lambda x: x + 1)(ones)
    assert torch.tpu.cache_stats()["requests"] == before + 1


def test_dynamo_is_imported_by_its_users_only() -> None:
    code = (
        "import sys, torch; print('torch._dynamo' in sys.modules); import torch._dynamo as d; print(d.__spec__.loader)"
    )
    answers = check_started_python(code)
    assert answers.startswith("False")
    assert "SourceFileLoader" in answers


def test_device_interface(device: torch.device) -> None:
    from torch._dynamo.device_interface import get_interface_for_device

    interface = get_interface_for_device("tpu")
    assert interface.is_available()
    assert interface.device_count() == torch.tpu.device_count()
    assert interface.current_device() == 0
    assert interface.is_dtype_supported(torch.float64)
    assert interface.is_dtype_supported(torch.float8_e4m3fn)
    assert interface.is_dtype_supported(torch.complex32)
    assert not interface.is_dtype_supported(torch.quint8)
    assert interface.Worker.get_device_properties(0).name == torch.tpu.get_device_name(0)
    interface.synchronize()


def test_programs_are_counted_and_reused(device: torch.device) -> None:
    compiled = torch.compile(lambda x: x * 2 + 1, dynamic=False)
    inputs = [torch.ones(n, device=device) for n in (2, 3, 2, 3, 2)]
    torch.tpu.reset_cache_stats()
    for x in inputs:
        compiled(x)
    stats = torch.tpu.cache_stats()
    assert (stats["requests"], stats["hits"], stats["compiles"]) == (5, 3, 2)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"])
def test_modes_are_accepted(mode: str, device: torch.device) -> None:
    assert torch.compile(lambda x: x + 1, mode=mode)(torch.ones(2, device=device)).tolist() == [2.0, 2.0]


def test_options_are_flags_of_xla(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    options = {"xla_cpu_enable_fast_math": True, "xla_backend_optimization_level": 1}
    assert torch.compile(lambda x: x + 1, options=options)(x).tolist() == [2.0, 2.0]
    for unknown in ({"no_such_option": True}, {"xla_no_such_flag": True}, {"xla_cpu_enable_fast_math": [1]}):
        with pytest.raises(Exception, match=next(iter(unknown))) as raised:
            torch.compile(lambda x: x + 1, options=unknown)(x)
        assert "Unexpected optimization option" in str(raised.value)


def test_errors_are_pytorchs(device: torch.device) -> None:
    with pytest.raises(Exception, match=r"shapes|size"):
        torch.compile(lambda x, y: x @ y)(torch.ones(2, 3, device=device), torch.ones(2, 3, device=device))
    with pytest.raises(RuntimeError, match="expected mat1 and mat2 to have the same dtype, but got: float != "):
        torch.compile(torch.mm)(torch.ones(2, 2, device=device), torch.ones(2, 2, device=device).long())


def test_forgotten_graphs_leave(device: torch.device) -> None:
    x = torch.ones(3, device=device)
    for i in range(3):
        function = torch.compile(lambda x, i=i: x + i)
        assert function(x)[0].item() == 1 + i
        torch._dynamo.reset()
    assert (x + 1).tolist() == [2.0] * 3


def test_a_part_behind_the_host_knows_the_sizes_in_a_sum(device: torch.device) -> None:
    """The host computes with a CPU tensor. The part after it takes only a tensor whose size is a sum of two symbols."""
    scale = torch.tensor(0.25)

    def scaled(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.cat([a, b])
        factor = torch.ops.prims.convert_element_type.default(scale * 1, torch.float64)
        return (x * factor).sum(1), x.sum(0) * factor

    compiled = torch.compile(scaled, dynamic=True)
    for sizes in ((3, 4), (5, 9), (6, 11), (2, 30)):
        a, b = (torch.randn(size, 2) for size in sizes)
        for result, expected in zip(compiled(a.to(device), b.to(device)), scaled(a, b), strict=True):
            assert_same(result, expected)
