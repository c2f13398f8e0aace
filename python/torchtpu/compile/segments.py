"""A graph as a callable: one program if possible, else several programs with host work between them.

Host work is everything on another device (a CPU tensor, a copy to the CPU, a program of another tpu device) and
everything that the table cannot lower (a custom operator, a result whose size depends on data). It runs as in
eager.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import sympy
import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.utils._pytree import tree_map

from torchtpu.graphs.bounds import Bounds, DependsOnSizesError, explain, growth_of
from torchtpu.graphs.collectives import is_collective
from torchtpu.graphs.encoder import Flags, attribute_of
from torchtpu.graphs.graph_encoder import COPY_, DENSE_FORMS, FUNCTION_CALLERS, GraphEncoder, Run, is_covered
from torchtpu.graphs.memory import View
from torchtpu.graphs.sizes import Sizes, is_ragged
from torchtpu.graphs.tracing import flatten_tensors

HOST = "host"
SYM_SIZE = torch.ops.aten.sym_size.int


def compile_graph(
    module: GraphModule, name: str, rows: frozenset[str], flags: Flags, sizes: Sizes | None = None
) -> Callable[[list[Any]], Any]:
    """Compiles a functional graph of AOTAutograd. The result is called with the list of the graph's inputs. Its method
    `prepare` begins to make the program of a call in the background; it is None if the graph is not one program for
    fixed sizes. With `sizes`, the values of all symbols, it is for these sizes only."""
    describe_random_states(module)
    unite_indices(module)
    device = only_device(module)
    if device is not None:
        run = _program(module, name, rows, flags, device, sizes)
    else:
        run = _segments(module, _places(module), name, rows, flags, sizes)

    def call(inputs: list[Any]) -> list[Any]:
        return run(inputs)

    call._boxed_call = True  # type: ignore[attr-defined]
    call.prepare = getattr(run, "prepare", None)  # type: ignore[attr-defined]
    return call


def _program(
    module: GraphModule, name: str, rows: frozenset[str], flags: Flags, device: int, sizes: Sizes | None
) -> Run:
    symbols = symbols_of(module) if sizes is None else {}
    if not symbols:
        return GraphEncoder(module, rows, sizes or {}).compiled(name, device, flags)
    return _Programs(module, name, rows, flags, device, symbols)


class SizeSource(NamedTuple):
    """How an input gives a size: `factor * size + rest` is the input itself (a number), or its dimension `dim`."""

    position: int
    dim: int | None
    factor: int
    rest: int

    def read(self, inputs: list[Any]) -> int:
        given = inputs[self.position] if self.dim is None else inputs[self.position].size(self.dim)
        return given if self.factor == 1 and not self.rest else (given - self.rest) // self.factor


class _Programs:
    """The programs of a graph with symbolic sizes: one program for all sizes up to a bound. If this fails, one for
    each set of the sizes that have not changed so far. If this fails, one for each set of sizes."""

    def __init__(
        self,
        module: GraphModule,
        name: str,
        rows: frozenset[str],
        flags: Flags,
        device: int,
        symbols: dict[Any, SizeSource],
    ) -> None:
        self._graph = (module, name, rows, flags, device)
        self._symbols = symbols
        self._growth = growth_of(node.meta.get("val") for node in module.graph.find_nodes(op="placeholder"))
        self._first: tuple[int, ...] = ()
        # The numbers of the sizes that a program covers; empty if each set of sizes has its own program.
        self._changing = set(range(len(symbols)))
        self._refused: list[set[int]] = []
        self._programs: dict[tuple[Any, ...], Callable[[list[Any], dict[Any, int]], list[Any]]] = {}

    def __call__(self, inputs: list[Any]) -> list[Any]:
        sizes = tuple(source.read(inputs) for source in self._symbols.values())
        named = dict(zip(self._symbols, sizes, strict=True))
        self._first = self._first or sizes
        if self._refused:
            changed = {i for i, (size, first) in enumerate(zip(sizes, self._first, strict=True)) if size != first}
            changed |= self._changing
            self._changing = set() if any(refused <= changed for refused in self._refused) else changed
        if self._changing:
            try:
                return self._bounded(named)(inputs, named)
            except NotImplementedError as reason:
                self._refused.append(set() if isinstance(reason, DependsOnSizesError) else self._changing)
                self._changing = set()
                explain(self._graph[1], reason)
        if sizes not in self._programs:
            module, name, rows, flags, device = self._graph
            run = GraphEncoder(module, rows, named).compiled(name, device, flags)
            self._programs[sizes] = lambda inputs, _: run(inputs)
        return self._programs[sizes](inputs, named)

    def _bounded(self, named: dict[Any, int]) -> Callable[[list[Any], dict[Any, int]], list[Any]]:
        changing = [symbol for i, symbol in enumerate(named) if i in self._changing]
        capacities = self._growth.reach(changing, [named[symbol] for symbol in changing])
        fixed = {symbol: size for symbol, size in named.items() if symbol not in changing}
        key = (tuple(changing), capacities, tuple(fixed.values()))
        if key not in self._programs:
            bounds = Bounds(dict(zip(changing, capacities, strict=True)), fixed)
            self._programs[key] = _BoundedProgram(*self._graph, bounds)
        return self._programs[key]


class _BoundedProgram:
    """A program for all sizes up to their bounds. The sizes are its inputs."""

    def __init__(
        self, module: GraphModule, name: str, rows: frozenset[str], flags: Flags, device: int, bounds: Bounds
    ) -> None:
        encoder = GraphEncoder(module, rows, bounds.fixed, bounds)
        self._run = encoder.compiled(name, device, flags)
        self._bounds = bounds
        self._outputs = encoder.symbolic_outputs
        self._views = encoder.symbolic_views
        # Cached, because evaluating expressions with Sympy is slow.
        self._known: dict[tuple[int, ...], tuple[list[int | float], list[tuple[int, int]], list[tuple[int, View]]]] = {}

    def __call__(self, inputs: list[Any], sizes: dict[Any, int]) -> list[Any]:
        key = tuple(sizes.values())
        if key not in self._known:
            numbers = [(position, int(expression.xreplace(sizes))) for position, expression in self._outputs]
            views = [(position, view.at(sizes)) for position, view in self._views]
            self._known[key] = self._bounds.values(sizes), numbers, views
        values, numbers, views = self._known[key]
        outputs = self._run([*inputs, *values])
        count = len(outputs) - len(views)
        for (position, view), whole in zip(views, outputs[count:], strict=True):
            outputs[position] = view.of(whole)
        del outputs[count:]
        for position, number in numbers:
            outputs[position] = number
        return outputs


def symbols_of(module: GraphModule) -> dict[Any, SizeSource]:
    """The symbolic sizes of a graph, and the input that gives each."""
    inputs = [node.meta.get("val") for node in module.graph.find_nodes(op="placeholder")]
    given = [
        (size.node.expr, i, dim)
        for i, value in enumerate(inputs)
        for dim, size in (enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)])
        if isinstance(size, torch.SymInt) and not is_ragged(size)
    ]
    symbols: dict[Any, SizeSource] = {}
    # In a backward graph, an input may be larger or smaller than a size by a constant.
    for expression, i, dim in sorted(given, key=lambda each: not each[0].is_symbol):
        unknown = expression.free_symbols - set(symbols)
        if len(unknown) == 1:
            (symbol,) = unknown
            factor = sympy.expand(expression).coeff(symbol)
            rest = sympy.expand(expression - factor * symbol)
            if factor.is_Integer and rest.is_Integer:
                symbols[symbol] = SizeSource(i, dim, int(factor), int(rest))
    return symbols


def describe_random_states(module: GraphModule) -> None:
    """Sets the shape of saved random states: AOTAutograd assumes the CPU's state; here it is a key and a counter."""
    for node in module.graph.find_nodes(op="call_function", target=run_and_save_rng_state):
        for user in node.users:
            if user.args[1] == 0:
                user.meta["val"] = torch.empty(16, dtype=torch.uint8, device="meta")
    for node in module.graph.find_nodes(op="call_function", target=run_with_rng_state):
        node.args[0].meta["val"] = torch.empty(16, dtype=torch.uint8, device="meta")


def unite_indices(module: GraphModule) -> None:
    """Guards that the indices and the values of a write broadcast together: PyTorch's fake kernel does not ask. Their
    sizes are then one symbol."""
    for target in (torch.ops.aten.index_put.default, torch.ops.aten._unsafe_index_put.default):
        for node in module.graph.find_nodes(op="call_function", target=target):
            written, indices, values = (
                tree_map(lambda each: each.meta["val"] if isinstance(each, Node) else each, each)
                for each in node.args[:3]
            )
            tensors = [each for each in indices if each is not None]
            is_symbolic = any(isinstance(size, torch.SymInt) for each in (*tensors, values) for size in each.shape)
            if is_symbolic and all(each.dtype in (torch.int32, torch.int64) for each in tensors):
                with written.fake_mode:
                    torch.broadcast_shapes(torch.ops.aten.index.Tensor(written, indices).shape, values.shape)


def only_device(module: GraphModule, *, for_all_ranks: bool = False) -> int | None:
    """The index of the device that runs the whole graph; None if there are several, or the host runs a part. With
    `for_all_ranks`, collectives are a part of the program."""
    places = _places(module)
    devices = {place for node, place in places.items() if not (for_all_ranks and _is_collective(node))}
    return int(next(iter(devices), "0")) if len(devices) <= 1 and HOST not in devices else None


def _is_collective(node: Node) -> bool:
    """Whether a node is a functional collective, or takes one of its results."""
    source = node.args[0] if node.target is python_operator.getitem else node
    return isinstance(source, Node) and is_collective(source.target)


def _places(module: GraphModule) -> dict[Node, str]:
    """Where each operator call runs: the index of a tpu device, or HOST."""
    places: dict[Node, str] = {}
    for node in module.graph.nodes:
        if node.op != "call_function":
            continue
        if node.target is python_operator.getitem:
            places[node] = places[node.args[0]]
        elif not _is_arithmetic(node):
            places[node] = _place(node)
    return places


def _is_arithmetic(node: Node) -> bool:
    """Whether a node computes a size from sizes that are known before the graph runs."""
    value = node.meta.get("val")
    if isinstance(node.target, OpOverload) and node.target.namespace == "aten" and node.target is not SYM_SIZE:
        return False
    return isinstance(value, torch.SymInt | torch.SymBool | torch.SymFloat) and not _is_unbacked(value)


def _is_unbacked(value: Any) -> bool:
    """Whether a number depends on data."""
    return bool(free_unbacked_symbols(value))


def _place(node: Node) -> str:
    if node.target in (run_and_save_rng_state, run_with_rng_state):
        named: Any = node.kwargs.get("device")
        device = named or next(_devices_of(node.all_input_nodes), torch.device("cpu"))
        return str(device.index or 0) if device.type == "tpu" else HOST
    if node.meta.get("unbacked_bindings"):
        return HOST  # a number or a size of its result depends on data, even if a check says what it is
    results = list(flatten_tensors(node.meta.get("val")))
    given = (each.meta.get("val") for each in node.all_input_nodes)
    numbers = [each for each in given if isinstance(each, torch.SymInt | torch.SymFloat | torch.SymBool)]
    if any(_is_unbacked(size) for size in (*numbers, *(size for tensor in results for size in tensor.shape))):
        return HOST
    inputs = [
        tensor
        for each in node.all_input_nodes
        for tensor in flatten_tensors(each.meta.get("val"))
        # A program takes the number in a 0-d CPU tensor.
        if tensor.device.type != "cpu" or tensor.dim() > 0 or (node.target is COPY_ and each is node.args[0])
    ]
    devices = {tensor.device for tensor in (*results, *inputs)}
    if len(devices) != 1 or next(iter(devices)).type != "tpu":
        return HOST
    if not results or not _is_lowered(node):
        return HOST
    return str(next(iter(devices)).index or 0)


def _devices_of(nodes: list[Node]) -> Iterator[torch.device]:
    for node in nodes:
        for tensor in flatten_tensors(node.meta.get("val")):
            if tensor.device.type == "tpu":
                yield tensor.device


def _is_lowered(node: Node) -> bool:
    """Whether a node can be part of a program."""
    operator = node.target
    if isinstance(operator, HigherOrderOperator):
        functions = [attribute_of(each) for each in node.all_input_nodes if each.op == "get_attr"]
        if operator.name() == "invoke_subgraph":
            return all(_is_function(each, may_draw=True) for each in functions)
        return operator.name() in DENSE_FORMS or (
            operator.name() in FUNCTION_CALLERS and all(_is_function(each) for each in functions)
        )
    if not isinstance(operator, OpOverload):
        return False
    return operator is COPY_ or is_covered(operator) or operator.namespace in ("aten", "prims")


def _is_function(function: Any, may_draw: bool = False) -> bool:
    """Whether a graph can be a function in a program."""
    return isinstance(function, GraphModule) and all(
        node.target is python_operator.getitem
        or _is_arithmetic(node)
        # The number of draws in a loop depends on data, but the advance of the generator must be known.
        or (_is_lowered(node) and (may_draw or not _draws(node.target)))
        for node in function.graph.nodes
        if node.op == "call_function"
    )


def _draws(operator: Any) -> bool:
    return isinstance(operator, OpOverload) and torch.Tag.nondeterministic_seeded in operator.tags


def _segments(
    module: GraphModule, places: dict[Node, str], name: str, rows: frozenset[str], flags: Flags, sizes: Sizes | None
) -> Run:
    from torch.fx.passes.split_module import split_module

    _name_symbols(module)
    levels = _levels(module, places)
    kinds = {levels[node]: place for node, place in places.items()}
    split = split_module(module, module, lambda node: levels[node], keep_original_order=False)
    for level, place in kinds.items():
        segment = getattr(split, f"submod_{level}")
        if place != HOST:
            part = _Segment(segment, f"{name}, part {level}", rows, flags, int(place), sizes)
            setattr(split, f"submod_{level}", part)
    return lambda inputs: list(split(*inputs))


def _name_symbols(module: GraphModule) -> None:
    """Tells `split_module` which symbols are in a value's sizes. A part that takes the value takes them as inputs, too:
    it cannot find two symbols in their sum. Symbols that are not inputs of the graph stay unknown."""
    values = {node: node.meta.get("val") for node in module.graph.nodes}
    inputs = [value for node, value in values.items() if node.op == "placeholder"]
    given = {value.node.expr for value in inputs if isinstance(value, torch.SymInt) and value.node.expr.is_symbol}
    for node, value in values.items():
        if isinstance(value, torch.Tensor | torch.SymInt) and free_symbols(value) <= given:
            node.meta["example_value"] = value


def _levels(module: GraphModule, places: dict[Node, str]) -> dict[Node, int]:
    """The number of each node's segment. Nodes in the same place that can run together have the same number."""
    kinds: list[str] = []
    levels: dict[Node, int] = {}

    def level_from(lowest: int, place: str) -> int:
        while lowest < len(kinds) and kinds[lowest] != place:
            lowest += 1
        if lowest == len(kinds):
            kinds.append(place)
        return lowest

    for node in module.graph.nodes:
        if node.op not in ("call_function", "get_attr"):
            continue
        place = places.get(node, HOST)
        before = [levels[each] for each in node.all_input_nodes if each in levels]
        if node.target is COPY_:
            # Readers of the old value come first.
            before += [levels[user] for user in node.args[0].users if user in levels]
        levels[node] = level_from(max(before, default=0), place)
    return levels


class _Segment(torch.nn.Module):
    """A part of a graph as a program."""

    def __init__(
        self, module: GraphModule, name: str, rows: frozenset[str], flags: Flags, device: int, sizes: Sizes | None
    ) -> None:
        super().__init__()
        self._single = isinstance(module.graph.output_node().args[0], Node)
        self._run = _program(module, name, rows, flags, device, sizes)

    def forward(self, *inputs: Any) -> Any:
        outputs = self._run(list(inputs))
        return outputs[0] if self._single else outputs
