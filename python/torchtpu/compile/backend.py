"""The backend "tpu" of torch.compile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from torchtpu import _C
from torchtpu.compile.options import flags_of
from torchtpu.graphs.encoder import Flag, Flags

Compiler = Callable[[GraphModule, Sequence[Any]], Callable[..., Any]]

# The backend of graphs without tpu tensors: the previous default backend.
others: str | Callable[..., Any] = "inductor"


def tpu(
    module: GraphModule,
    inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Flag] | None = None,
    name: str | None = None,
) -> Callable[..., Any]:
    """Compiles a Dynamo graph with tpu tensors. Passes other graphs to the previous default backend."""
    if not has_tpu_tensors(module, inputs):
        return _use_previous_default(module, inputs, mode, options, name)
    return compile_graph(module, inputs, flags_of(mode, options))


def compile_graph(module: GraphModule, inputs: Sequence[Any], flags: Flags) -> Callable[..., Any]:
    """Compiles a Dynamo graph with tpu tensors, with XLA's flags."""
    from torch._functorch._aot_autograd.logging_utils import get_aot_graph_name

    from torchtpu.compile import segments
    from torchtpu.compile.artifacts import record_programs

    record_programs()
    rows = frozenset(_C.table())

    def compiler(graph: GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return segments.compile_graph(graph, f"compiled {get_aot_graph_name()}", rows, flags)

    return with_autograd(module, inputs, compiler, compiler)


def with_autograd(
    module: GraphModule, inputs: Sequence[Any], forward: Compiler, backward: Compiler
) -> Callable[..., Any]:
    """Makes functional graphs from a Dynamo graph, with one for gradients if needed, and compiles them."""
    import torch._functorch.config as functorch
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition

    # No decompositions here: for an operator without a row, the encoder inserts the same trace as eager.
    compile_with_autograd = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,
    )
    # The core donates overwritten inputs by itself. Autograd frees what backward saved, and retain_graph=True must
    # work. XLA eliminates common subexpressions, and PyTorch's pass for them imports inductor.
    with functorch.patch(donated_buffer=False, cse=False):
        return compile_with_autograd(module, inputs)


def has_tpu_tensors(module: GraphModule, inputs: Sequence[Any]) -> bool:
    def is_tpu(value: Any) -> bool:
        if isinstance(value, list | tuple):
            return any(is_tpu(each) for each in value)
        return isinstance(value, torch.Tensor) and value.device.type == "tpu"

    graphs = [each.graph for each in module.modules() if isinstance(each, GraphModule)]
    return (
        any(is_tpu(value) for value in inputs)
        or any(is_tpu(value) for value in (*module.parameters(), *module.buffers()))
        or any(is_tpu(node.meta.get("example_value")) for graph in graphs for node in graph.nodes)
    )


def _use_previous_default(
    module: GraphModule,
    inputs: Sequence[Any],
    mode: str | None,
    options: Mapping[str, Flag] | None,
    name: str | None,
) -> Callable[..., Any]:
    given: dict[str, Any] = {"mode": mode, "options": options, "name": name}
    if others == "inductor":
        return torch._TorchCompileInductorWrapper(**given, dynamic=None)(module, inputs)
    from torch._dynamo.backends.registry import lookup_backend

    given = {key: value for key, value in given.items() if value}
    return lookup_backend(others)(module, list(inputs), **given)
