"""Programs that are traced once, without Dynamo: a function runs on fake tensors, and AOTAutograd makes a graph of it.
A call of the program then costs no guards.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule

from torchtpu import _C

Run = Callable[[list[Any]], list[Any]]


def compiled(function: Callable[..., Any], inputs: list[Tensor], name: str) -> Run:
    """A function of tensors as one program, compiled by a first run with `inputs`. It may write its inputs. Collectives
    cut it in several programs.

    Raises RuntimeError if a part of it would run on the host.
    """
    import torch._functorch.config as functorch
    from torch._functorch.aot_autograd import aot_function

    from torchtpu.compile import segments

    rows = frozenset(_C.table())
    runs: list[Run] = []

    def compiler(gm: GraphModule, example_inputs: Any) -> Run:
        if segments.only_device(gm, for_all_ranks=True) is None:
            raise RuntimeError(f"torchtpu: the {name} calls {_foreign(gm)}, which programs for the device cannot have")
        runs.append(segments.compile_graph(gm, name, rows, ()))
        return runs[-1]

    traced = aot_function(
        function, fw_compiler=compiler, inference_compiler=compiler, keep_inference_input_mutations=True
    )
    with torch.no_grad(), functorch.patch(donated_buffer=False, cse=False):
        traced(*inputs)
    return runs[0]


def _foreign(graph: GraphModule) -> str:
    """The names of the operators of a graph that are not PyTorch's own."""
    operators = {node.target for node in graph.graph.nodes if isinstance(node.target, OpOverload)}
    foreign = sorted(each.name() for each in operators if each.namespace not in ("aten", "prims", "torchtpu"))
    return ", ".join(foreign) or "operators of the CPU"
