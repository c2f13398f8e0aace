"""`torch.tpu.stablehlo`: the program of a call, as text."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NoReturn

import torch
from torch.fx import GraphModule, Node

from torchtpu import _C
from torchtpu.compile.backend import has_tpu_tensors, with_autograd
from torchtpu.compile.segments import describe_random_states, only_device
from torchtpu.graphs import collectives
from torchtpu.graphs.encoder import SCALAR_TYPES, Numbers
from torchtpu.graphs.graph_encoder import GraphEncoder, Run


class _NotRunError(Exception):
    """Ends a call whose text is known, before anything runs."""

    def __init__(self, text: str) -> None:
        super().__init__("the call is listed")
        self.text = text


class _Encoder(GraphEncoder):
    """Writes the text of a graph, for the compiler of `target`."""

    target: Literal["cpu", "tpu"] | None = None
    text = ""

    def make(self, *description: Any) -> Run:
        _, graph, kinds, _, described, _, _, _, bounds = description
        given = [node for node, kind in zip(self.placeholders, kinds, strict=True) if kind == "t"]
        inputs = [(self._input(node), None) for node in given]
        numbers = [SCALAR_TYPES[torch.float64]] * kinds.count("n")
        results = [(dtype, sizes) for dtype, sizes, _ in described]
        target = self.target or _C.platform_info()["platform"]
        self.text = _C.stablehlo(graph, inputs, numbers, results, target, bounds, is_called=True)
        return self._end

    def call_operator(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> Numbers:
        if collectives.is_collective(operator):
            return collectives.encode(self, operator, args)
        return super().call_operator(operator, args, kwargs, results)

    def _input(self, node: Node) -> tuple[int, list[int]]:
        value = node.meta["val"]
        is_flat = node in self._memory.inputs
        return SCALAR_TYPES[value.dtype], [self._memory.extent(node)[0]] if is_flat else list(value.shape)

    def _end(self, _: list[Any]) -> NoReturn:
        raise _NotRunError(self.text)


def listed(function: Callable[..., Any], args: Any, kwargs: Any, target: Literal["cpu", "tpu"] | None) -> str:
    """Implements `torch.tpu.stablehlo`."""
    from torch._dynamo.exc import BackendCompilerFailed, Unsupported

    def forward(graph: GraphModule, _: Sequence[Any]) -> Callable[[list[Any]], Any]:
        describe_random_states(graph)
        device = only_device(graph, for_all_ranks=True)
        if device is None:
            raise RuntimeError(
                "stablehlo: a part of the call runs on the host or on another device, so it is not one program"
            )
        encoder = _Encoder(graph, frozenset(_C.table()), {})
        encoder.target = target
        encoder.compiled("", device, ())

        def call(inputs: list[Any]) -> NoReturn:
            encoder._end(inputs)

        call._boxed_call = True  # type: ignore[attr-defined]
        return call

    def backend(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        if not has_tpu_tensors(module, inputs):
            raise ValueError("stablehlo: no tensor of the call is on the device 'tpu'")
        return with_autograd(module, inputs, forward, lambda graph, _: graph.forward)

    def call() -> Any:
        return function(*args, **kwargs)

    # Dynamo keeps its results with the code of a function. These results are of no use to another call.
    code = call.__code__.replace(co_name=getattr(function, "__name__", "call"))
    traced = types.FunctionType(code, call.__globals__, code.co_name, None, call.__closure__)
    try:
        torch.compile(traced, backend=backend, fullgraph=True, dynamic=False)()
    except _NotRunError as found:
        return found.text
    except Unsupported as error:
        raise RuntimeError(f"stablehlo: the call cannot be traced as one program: {error}") from None
    except BackendCompilerFailed as error:
        raise error.inner_exception from None
    raise ValueError("stablehlo: the call computes nothing on the device 'tpu'")
