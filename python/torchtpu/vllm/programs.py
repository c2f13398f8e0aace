"""Programs that are traced once, without Dynamo: a function runs on fake tensors, and AOTAutograd makes a graph of it.
A call of the program then costs no guards.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from torchtpu import _C

Run = Callable[[list[Any]], list[Any]]

log = logging.getLogger(f"vllm.{__name__}")  # vLLM shows the loggers under its own


def compiled(function: Callable[..., Any], inputs: list[Tensor], name: str) -> Run:
    """A function of tensors as one program, compiled by a first run with `inputs`. It may write its inputs. Collectives
    cut it in several programs.

    Raises RuntimeError if a part of it would run on the host.
    """
    run = traced(function, inputs, name)
    run(inputs)
    return run


def traced(function: Callable[..., Any], inputs: list[Tensor], name: str) -> Run:
    """As `compiled`, without a run: nothing is compiled yet."""
    import torch._functorch.config as functorch
    from torch._functorch.aot_autograd import aot_function

    from torchtpu.compile import segments

    rows = frozenset(_C.table())
    runs: list[Run] = []

    def compiler(gm: GraphModule, example_inputs: Any) -> Run:
        if segments.only_device(gm, for_all_ranks=True) is None:
            raise RuntimeError(f"torchtpu: the {name} calls {_foreign(gm)}, which programs for the device cannot have")
        runs.append(segments.compile_graph(gm, name, rows, ()))
        return _without_a_run(gm)

    tracer = aot_function(
        function, fw_compiler=compiler, inference_compiler=compiler, keep_inference_input_mutations=True
    )
    with torch.no_grad(), functorch.patch(donated_buffer=False, cse=False):
        tracer(*inputs)
    return runs[0]


def _without_a_run(graph: GraphModule) -> Run:
    """A function that returns the fake results of a graph."""

    results: Any = graph.graph.output_node().args[0]

    def run(inputs: list[Any]) -> list[Any]:
        return [each.meta["val"] if isinstance(each, Node) else each for each in results]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class Tighter:
    """A program for few tokens, which is made in the background while a larger one serves. `trace` gives it, without a
    run."""

    STEPS_BEFORE = 4
    """A program that so many steps could have used is worth making."""

    def __init__(self, size: int, trace: Callable[[], Run]) -> None:
        self.size = size
        self.run: Run
        self._missed = 0
        self._trace = trace
        self._prepared: _C.Prepared | None = None
        self._is_ready = False

    @property
    def is_begun(self) -> bool:
        return self._missed >= self.STEPS_BEFORE

    def is_due(self) -> bool:
        """Counts a step that could have used it. Returns whether it is to be begun now."""
        self._missed += 1
        return self._missed == self.STEPS_BEFORE

    def begin(self, inputs: list[Any]) -> None:
        """Traces it, and begins to make the program for these inputs. The trace is not on another thread, because it
        changes modules that other models of the process may share."""
        self.run = self._trace()
        prepare = getattr(self.run, "prepare", None)
        if prepare is not None:
            self._prepared = prepare(inputs)

    def is_ready(self) -> bool:
        if self._prepared is not None and not self._is_ready:
            try:
                self._is_ready = self._prepared.is_ready()
            except RuntimeError as error:
                self._prepared = None
                log.warning("torchtpu: no program for steps of %d tokens: %s", self.size, error)
        return self._is_ready


def tighter_sizes(sequences: int, tokens: int) -> list[int]:
    """Sizes for few requests, and between those of a server's two programs: at most half of the next larger one."""
    few, between = max(sequences // 8, 1), 2 ** round(math.log2(sequences * tokens) / 2)
    found = []
    if few <= sequences / 2:
        found.append(few)
    if sequences < between <= tokens / 2:
        found.append(between)
    return found


def _foreign(graph: GraphModule) -> str:
    """The names of the operators of a graph that are not PyTorch's own."""
    operators = {node.target for node in graph.graph.nodes if isinstance(node.target, OpOverload)}
    foreign = sorted(each.name() for each in operators if each.namespace not in ("aten", "prims", "torchtpu"))
    return ", ".join(foreign) or "operators of the CPU"
