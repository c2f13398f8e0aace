"""Programs that are traced once, without Dynamo: a function runs on fake tensors, and AOTAutograd makes a graph of it.
A call of the program then costs no guards. A graph with symbols gives a program for each set of sizes.
"""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import sympy
import torch
import torch._functorch.config as functorch
from torch import Tensor
from torch._dynamo.source import ConstantSource
from torch._functorch.aot_autograd import aot_function
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv

from torchtpu import _C
from torchtpu.compile import segments
from torchtpu.kernels import routing

Run = Callable[[list[Any]], list[Any]]

log = logging.getLogger(f"vllm.{__name__}")  # vLLM shows the loggers under its own


class Inlined:
    """A function of tensors without side effects. AOTAutograd meets it as one operator of the namespace `torchtpu`.
    Its graph, which is traced once, then takes the operator's place."""

    _of_operators: ClassVar[dict[OpOverload, Callable[..., Any]]] = {}

    def __init__(self, schema: str, function: Callable[..., Tensor], fake: Callable[..., Tensor]) -> None:
        """`fake` returns a tensor of the result's form."""
        name = schema.partition("(")[0]
        self._library = torch.library.Library("torchtpu", "FRAGMENT")
        self._library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        torch.library.register_fake(f"torchtpu::{name}", fake, lib=self._library)
        self._operator: OpOverload = getattr(torch.ops.torchtpu, name).default
        self._of_operators[self._operator] = function

    def __call__(self, *tensors: Tensor) -> Tensor:
        result: Tensor = self._operator(*tensors)
        return result

    @classmethod
    def into(cls, graph: GraphModule) -> None:
        """Puts graphs of functions in the places of their operators."""
        for node in list(graph.graph.nodes):
            if (function := cls._of_operators.get(node.target)) is None:
                continue
            inner = make_fx(function)(*(each.meta["val"] for each in node.args))
            for name, branch in inner.named_children():
                graph.add_module(f"{node.name}_{name}", branch)
            values: dict[Node, Any] = dict(zip(inner.graph.find_nodes(op="placeholder"), node.args, strict=True))
            with graph.graph.inserting_before(node):
                result = graph.graph.graph_copy(inner.graph, values)
            for copied in values.values():
                if copied.op == "get_attr" and not hasattr(graph, copied.target):
                    copied.target = f"{node.name}_{copied.target}"
            node.replace_all_uses_with(result)
            graph.graph.erase_node(node)


def compiled(function: Callable[..., Any], inputs: list[Tensor], name: str) -> Run:
    """A function of tensors as one program, compiled by a first run with `inputs`. It may write its inputs.

    Raises RuntimeError if a part of it would run on the host.
    """
    run = traced(function, inputs, name)
    run(inputs)
    return run


def traced(function: Callable[..., Any], inputs: Sequence[Any], name: str) -> Run:
    """As `compiled`, without a run: nothing is compiled yet. Collectives cut it in several programs."""
    return segments.compile_graph(_graph(function, inputs, name), name, frozenset(_C.table()), ())


class Sized:
    """A function of sizes and tensors, traced once, with the sizes as symbols. It may write the tensors. The last one
    is a vector, of int32, whose length follows from the sizes.

    Raises RuntimeError if a part of it would run on the host.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        sizes: tuple[int, ...],
        tensors: list[Tensor],
        length: Callable[..., int],
        name: str,
    ) -> None:
        """Traces the function, unless kernels may be a part of it: they are chosen by sizes. `sizes` are
        examples, and `length` gives that of the vector, which `tensors` lack."""
        self._function, self._tensors, self._length, self._name = function, tensors, length, name
        self._module: GraphModule | None = None
        # Whether a kernel computes an operator follows from the sizes of its arguments.
        if routing.is_on():
            return
        self._shapes = ShapeEnv()
        self._symbols = [self._symbol(f"size_{i}", size) for i, size in enumerate(sizes)]
        given = [
            self._shapes.create_symintnode(symbol, hint=size) for symbol, size in zip(self._symbols, sizes, strict=True)
        ]
        self._module = _graph(function, [*given, *self._fake(FakeTensorMode(shape_env=self._shapes), given)], name)

    def at(self, *sizes: int) -> Run:
        """Its program for these sizes, which is not compiled yet. Collectives cut it in several programs."""
        name = f"{self._name} of {sizes[0]}"
        if self._module is not None and self._fits(named := dict(zip(self._symbols, sizes, strict=True))):
            run = segments.compile_graph(self._module, name, frozenset(_C.table()), (), named)
        else:
            # A size of one is another graph: it broadcasts.
            run = traced(functools.partial(self._function, *sizes), self._fake(FakeTensorMode(), sizes), name)
            sizes = ()

        def call(tensors: list[Any]) -> list[Any]:
            return run([*sizes, *tensors])

        if (prepare := getattr(run, "prepare", None)) is not None:
            call.prepare = lambda tensors: prepare([*sizes, *tensors])  # type: ignore[attr-defined]
        return call

    def _fits(self, named: dict[sympy.Symbol, int]) -> bool:
        return all(guard.expr.xreplace(named) == sympy.true for guard in self._shapes.guards)

    def _symbol(self, name: str, size: int) -> sympy.Symbol:
        made = self._shapes.create_symbol(
            size, ConstantSource(name), dynamic_dim=DimDynamic.DYNAMIC, do_not_specialize_zero_one=True
        )
        assert isinstance(made, sympy.Symbol)
        return made

    def _fake(self, mode: FakeTensorMode, sizes: Sequence[Any]) -> list[Tensor]:
        tensors = [mode.from_tensor(each, static_shapes=True) for each in self._tensors]
        with mode:
            vector = torch.empty(self._length(*sizes), dtype=torch.int32, device=tensors[0].device)
        return [*tensors, vector]


def _graph(function: Callable[..., Any], inputs: Sequence[Any], name: str) -> GraphModule:
    """The functional graph of a function, which writes its inputs at the end."""
    graphs: list[GraphModule] = []

    def compiler(gm: GraphModule, example_inputs: Any) -> Run:
        Inlined.into(gm)
        if segments.only_device(gm, for_all_ranks=True) is None:
            raise RuntimeError(f"torchtpu: the {name} calls {_foreign(gm)}, which programs for the device cannot have")
        graphs.append(gm)
        return _without_a_run(gm)

    tracer = aot_function(
        function, fw_compiler=compiler, inference_compiler=compiler, keep_inference_input_mutations=True
    )
    with torch.no_grad(), functorch.patch(donated_buffer=False, cse=False):
        tracer(*inputs)
    return graphs[0]


def _without_a_run(graph: GraphModule) -> Run:
    """A function that returns the fake results of a graph."""

    results: Any = graph.graph.output_node().args[0]

    def run(inputs: list[Any]) -> list[Any]:
        return [each.meta["val"] if isinstance(each, Node) else each for each in results]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


class Tighter:
    """A program for few tokens, which is made in the background while a larger one serves."""

    STEPS_BEFORE = 4
    """A program that so many steps could have used is worth making."""

    def __init__(self, size: int, run: Run) -> None:
        self.size = size
        self.run = run
        self._missed = 0
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
        """Begins to make the program for these inputs."""
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
    few, between = max(sequences // 8, 2), 2 ** round(math.log2(sequences * tokens) / 2)
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
