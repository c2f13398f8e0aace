"""PyTorch's lists for torch.compile: its higher-order operators, and the graphs that AOTAutograd makes of
operators and custom operators, for known sizes and for symbols.

`make test` has the graphs of some fixed operators and of some drawn with TORCHTPU_TEST_SEED. The slow tests have
all.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch.fx import GraphModule

from tests.conformance.exceptions import is_random
from tests.conformance.operators import samples_of
from tests.conformance.places import CPU, DEVICE, Place, tensors_of
from tests.seeds import seed_everything
from tests.settings import SEED

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

HIGHER_ORDER = (
    "auto_functionalize.simple",
    "cond.simple",
    "flex_attention.simple",
    "flex_attention_backward.explicit_buffers",
    "flex_attention_backward.simple",
    "flex_gemm.simple",
    "invoke_quant.simple",
    "invoke_quant_packed.simple",
    "invoke_subgraph.simple",
    "local_map_hop.simple",
    "map.nested",
    "map.simple",
    "map.triple_nested",
    "register_hook.simple",
    "scan.simple",
    "switch.simple",
    "while_loop.simple",
    "while_loop_stack_output.simple",
)
OF_OTHER_DEVICES = {"inline_asm_elementwise.simple": "CUDA's"}
NOT_COMPILED = {
    "local_map_hop.simple": "Dynamo does not trace what the sample does to make its function",
    "register_hook.simple": "Dynamo does not know the operator",
}
NO_GRADIENTS = {
    "flex_attention.simple": "the CPU has none to compare with; test_compile_control.py has",
    "local_map_hop.simple": "the sample's function has none",
}

# The error of PyTorch's meta kernel for devices that it does not list. Eager calls no meta kernel here.
REFUSED_BY_NAME = "bicubic interpolation with 5D input is not supported on tpu"

# Operators that once failed with symbolic sizes, and some of each family.
FIXED = (
    "add",
    "addmm",
    "cat",
    "cumsum",
    "diag_embed",
    "dsplit",
    "fft.rfft",
    "gather",
    "hsplit",
    "index_select",
    "meshgrid.variadic_tensors",
    "nn.functional.conv2d",
    "nn.functional.linear",
    "resize_as_",
    "sgn",
    "softmax",
    "unbind",
)
DRAWN = 8
# The number of samples of each operator in the slow tests.
SAMPLES = 3
SHARDS = 24


@functools.cache
def higher_order() -> dict[str, Any]:
    from torch.testing._internal import hop_db

    # PyTorch has this operator only for the devices of its own tests.
    @torch.library.impl("testlib::mutating_custom_op", "tpu")
    def mutate(x: Tensor, z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        x.add_(5)
        z.add_(5)
        return x.clone(), z.clone(), x + z

    return {_name(entry): entry for entry in hop_db.hop_db}


@functools.cache
def operators() -> dict[str, Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return {_name(entry): entry for entry in op_db if torch.float32 in entry.dtypes}


def _name(entry: Any) -> str:
    return f"{entry.name}.{entry.variant_test_name}" if entry.variant_test_name else entry.name


def _samples(entry: Any, device: str, gradients: bool) -> list[Any]:
    seed_everything(SEED)
    return [*samples_of(entry.sample_inputs_func, entry, device, torch.float32, gradients)]


# ---- higher-order operators --------------------------------------------------------------------------------------


def _results(entry: Any, place: Place, gradients: bool) -> list[list[Tensor]]:
    """The results of an entry's samples on a device, and their gradients."""
    results = []
    # Flex attention's samples contain objects with tensors, which are created on the device.
    for sample, there in zip(_samples(entry, "cpu", gradients), _samples(entry, place.device, gradients), strict=True):
        input, args, kwargs = place.put((sample.input, sample.args, sample.kwargs))
        args = [there.args[i] if type(each).__name__ == "BlockMask" else each for i, each in enumerate(args)]
        returned = [*tensors_of(place.prepared(entry.op)(input, *args, **kwargs))]
        leaves = [each for each in tensors_of((input, args, kwargs)) if each.requires_grad]
        total = sum(each.sum() for each in returned if each.requires_grad)
        found = torch.autograd.grad(total, leaves, allow_unused=True) if gradients else ()
        results.append([None if each is None else each.detach().cpu() for each in (*returned, *found)])
    return results


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("how", ["eager", "compiled"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow if "nested" in name else ()) for name in HIGHER_ORDER]
)
def test_higher_order_operators(name: str, how: str, gradients: bool) -> None:
    if reason := (how != "eager" and NOT_COMPILED.get(name)) or (gradients and NO_GRADIENTS.get(name)):
        pytest.skip(reason)
    entry = higher_order()[name]
    if gradients and not entry.supports_autograd:
        pytest.skip("PyTorch has no gradients of it")
    place = DEVICE if how == "eager" else Place("tpu", compiler="tpu")
    torch.testing.assert_close(_results(entry, place, gradients), _results(entry, CPU, gradients))


def test_all_higher_order_operators_are_known() -> None:
    assert set(higher_order()) <= {*HIGHER_ORDER, *OF_OTHER_DEVICES}


# ---- graphs of AOTAutograd's -------------------------------------------------------------------------------------

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]


def _tpu_compiler(graph: GraphModule, _: Sequence[Any]) -> Callable[..., Any]:
    from torchtpu import _C
    from torchtpu.compile.segments import compile_graph

    return compile_graph(graph, "graph", frozenset(_C.table()), ())


def _check_graphs(call: Callable[..., Any], given: Any, dynamic: bool, compiler: Compiler) -> None:
    """PyTorch's check that a call and its compiled graphs give the same results."""
    from torch.testing._internal.optests import aot_autograd

    args, kwargs = given
    close = functools.partial(torch.testing.assert_close, equal_nan=True, rtol=1e-4, atol=1e-4)
    with mock.patch.object(aot_autograd, "nop", compiler):
        aot_autograd.aot_autograd_check(
            call, args, kwargs, dynamic, assert_equals_fn=close, check_gradients="auto", copy_inputs=True
        )


def _problems(entry: Any, samples: list[Any]) -> list[str]:
    """The graphs of an entry that differ from eager, if they are equal on the CPU without a compiler."""
    from functorch.compile import nop

    problems = []
    for sample in samples:
        # With changing sizes, random numbers are drawn for the largest size, so they differ from eager's.
        for dynamic in (False,) if is_random(_name(entry)) else (False, True):

            def check(place: Place, compiler: Compiler, sample: Any = sample, dynamic: bool = dynamic) -> None:
                input, args, kwargs = place.put((sample.input, sample.args, sample.kwargs))
                _check_graphs(entry.op, ((input, *args), kwargs), dynamic, compiler)

            try:
                check(DEVICE, _tpu_compiler)
            except Exception as error:
                if REFUSED_BY_NAME in str(error):
                    continue
                try:
                    check(CPU, nop)
                except Exception:
                    continue
                sizes = "symbols" if dynamic else "known sizes"
                problems.append(f"{_name(entry)} with {sizes}: {type(error).__name__}: {error} {error.__cause__ or ''}")
    return problems


def check_operators(names: Sequence[str], count: int) -> None:
    problems = []
    for name in names:
        entry = operators()[name]
        try:
            samples = _samples(entry, "cpu", entry.supports_autograd)
        except Exception:
            continue  # PyTorch's samples require another device
        problems += _problems(entry, random.Random(SEED).sample(samples, min(count, len(samples))))
    if problems:
        pytest.fail("\n".join([f"TORCHTPU_TEST_SEED={SEED} repeats this", *problems]), pytrace=False)


@pytest.mark.parametrize("name", FIXED)
def test_graphs_of_operators(name: str) -> None:
    check_operators([name], 1)


@pytest.mark.parametrize("shard", range(4))
def test_graphs_of_drawn_operators(shard: int) -> None:
    drawn = random.Random(SEED).sample(sorted(operators()), DRAWN)
    check_operators(drawn[shard::4], 1)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_graphs_of_all_operators(shard: int) -> None:
    check_operators(sorted(operators())[shard::SHARDS], SAMPLES)


def test_graphs_of_custom_operators() -> None:
    from torch.testing._internal.custom_op_db import custom_op_db

    problems = []
    for entry in custom_op_db:
        problems += _problems(entry, _samples(entry, "cpu", entry.supports_autograd))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in NOT_COMPILED else pytest.mark.slow) for name in HIGHER_ORDER],
)
def test_graphs_of_higher_order_operators(name: str) -> None:
    entry = higher_order()[name]
    problems = _problems(entry, _samples(entry, "cpu", entry.supports_autograd and name not in NO_GRADIENTS))
    assert not problems, "\n".join(problems)
