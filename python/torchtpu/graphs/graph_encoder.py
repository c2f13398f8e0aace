"""From a functional graph of AOTAutograd to a compiled graph of the core.

The encoder of decompositions does most of the work. This adds inputs that are written (`copy_` at the end of the
graph), numbers as inputs, outputs that are inputs, decompositions of operators without rows, and the random states
that checkpointing saves.
"""

from __future__ import annotations

import functools
import importlib
import operator as python_operator
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard

import torch
from torch._ops import HigherOrderOperator, OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule, Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

from torchtpu import _C
from torchtpu.graphs.bounds import Bounds, DependsOnSizesError, SizeOf, UnboundedError
from torchtpu.graphs.encoder import MAX_CONSTANT, SCALAR_TYPES, Encoded, Flags, Numbers, Value, attribute_of
from torchtpu.graphs.guards import Guards
from torchtpu.graphs.memory import (
    AS_STRIDED,
    AS_STRIDED_COPY,
    AS_STRIDED_SCATTER,
    Memory,
    View,
    is_dense,
    is_same_kind,
    owner_of,
    view_of,
)
from torchtpu.graphs.names import name_of
from torchtpu.graphs.sizes import SYMBOLIC, SizeEncoder, Sizes, symbolic
from torchtpu.graphs.threads import on_a_clean_thread
from torchtpu.graphs.tracing import IDENTITIES, Traced, arguments_of, trace_fake, trace_graph
from torchtpu.kernels import flex
from torchtpu.kernels.registry import is_kernel
from torchtpu.operators.attention import blocks

COPY_ = torch.ops.aten.copy_.default
# Allocations, with the place of the size among their arguments. An uninitialized tensor is zeros.
ALLOCATIONS = {
    torch.ops.aten.empty.memory_format: 0,
    torch.ops.aten.empty_strided.default: 0,
    torch.ops.aten.new_empty.default: 1,
    torch.ops.aten.new_empty_strided.default: 1,
}

Run = Callable[[list[Any]], list[Any]]

# Higher-order operators with rows, and their parameters.
FUNCTION_CALLERS = {
    "cond": ("pred", "true_fn", "false_fn", "operands"),
    "while_loop": ("cond_fn", "body_fn", "carried_inputs", "additional_inputs"),
    "scan": ("combine_fn", "init", "xs", "additional_inputs"),
    "map_impl": ("f", "xs", "pos_args"),
}

# Higher-order operators that PyTorch also computes with other operators: the name of the function that does so, in
# the same module.
DENSE_FORMS = {"flex_attention": "sdpa_dense", "flex_attention_backward": "sdpa_dense_backward"}


def is_covered(operator: Any) -> bool:
    """Whether the table lowers an operator directly."""
    if not isinstance(operator, OpOverload):
        return False
    name = name_of(operator)
    return name in IDENTITIES or _C.has_row(name) or is_kernel(operator)


class GraphEncoder(SizeEncoder):
    """Encodes a graph of AOTAutograd. Symbolic sizes have the values in `sizes`, or are bounded."""

    def __init__(self, module: GraphModule, rows: frozenset[str], sizes: Sizes, bounds: Bounds | None = None) -> None:
        super().__init__(sizes, bounds)
        self._rows = rows
        # The sizes of results, by node number.
        self._result_dims: dict[int, list[list[SizeOf] | None]] = {}
        # Outputs that follow from the sizes, and views at places that follow from them: the caller of the graph makes
        # them. The bases of these views are returned after the outputs.
        self.symbolic_outputs: list[tuple[int, Any]] = []
        self.symbolic_views: list[tuple[int, View]] = []
        self.kinds = ""
        # The new values of inputs that the graph writes.
        self.written: dict[Node, int] = {}
        # Constants that are too large for the program's text are its first inputs.
        captured = [node for node in module.graph.find_nodes(op="get_attr") if _is_large(attribute_of(node))]
        self.captured: list[torch.Tensor] = [attribute_of(node) for node in captured]
        self.placeholders = [*captured, *module.graph.find_nodes(op="placeholder")]
        self._memory = Memory(self, module)
        # Inputs get the first numbers. Inputs that the graph does not take get none, such as the CPU tensors in a
        # graph for the device (the lengths of a nested tensor). A graph for export may have only CPU tensors.
        is_on_device = any(_is_tensor(node) and not _is_on_host(node) for node in self.placeholders)
        for node in self.placeholders:
            is_passed = is_on_device and _is_on_host(node) and all(user.op == "output" for user in node.users)
            self.kinds += "t" if node in captured else "-" if is_passed else _kind_of(node.meta.get("val"))
        self._taken = len(self.kinds) - self.kinds.count("-")
        numbers = iter(self.new_numbers(self._taken))
        self.number_sizes(module)
        given = [None if kind == "-" else next(numbers) for kind in self.kinds]
        self.numbers.update(zip(captured, given, strict=False))
        given = [self._taken_whole(*each) for each in zip(self.placeholders, given, strict=True)]
        self.outputs = self.walk(module, given[len(captured) :])

    def compiled(self, name: str, device: int, flags: Flags) -> Run:
        """The graph as a callable that takes the list of its inputs."""
        written = [node for node in self.placeholders if node in self.written]
        results = [self.written[node] for node in written]
        described = [self._describe(node) for node in written]
        sources: list[int] = []
        fresh: dict[Node, int] = {}

        def source_of(node: Node) -> int:
            if node in self.placeholders:
                return -1 - self.placeholders.index(node)
            if node not in fresh:
                fresh[node] = len(fresh)
                results.append(self.number(node))
                described.append(self._describe(node))
            return fresh[node]

        # Outputs that the program does not return: numbers and views.
        others: list[tuple[int, Any]] = []
        passed: list[tuple[int, int]] = []
        views: list[tuple[int, View]] = []
        shown = Counter(owner_of(each) for each in dict.fromkeys(self.outputs) if _is_tensor(each))
        for position, output in enumerate(self.outputs):
            sources.append(_NOTHING)
            if self.is_bounded(output):
                self.symbolic_outputs.append((position, symbolic(output).node.expr))
            elif not isinstance(output, Node) or not isinstance(output.meta["val"], torch.Tensor):
                others.append((position, self.plain(output)))
            elif output in self.placeholders and self.kinds[self.placeholders.index(output)] == "-":
                passed.append((position, self.placeholders.index(output)))
            elif self._is_given_as_view(output, shown):
                view = self._memory.view(output, owner_of(output))
                (self.symbolic_views if view.is_symbolic else views).append((position, view))
            else:
                sources[position] = source_of(output)
        count = len(sources)
        sources.extend(source_of(view.owner) for _, view in [*views, *self.symbolic_views])
        extra = 0 if self._bounds is None else len(self._bounds)
        graph = (self._taken + extra, self.nodes, results)
        positions = [self.placeholders.index(node) for node in written]
        bounds = self.described_bounds()
        kinds = self.kinds + "n" * extra
        call = self.make(name, graph, kinds, positions, described, sources, device, list(flags), bounds)
        others = [(position, value) for position, value in others if value is not None]
        captured = [on_a_clean_thread(functools.partial(each.to, f"tpu:{device}")) for each in self.captured]
        spans = [(self.placeholders.index(node), *self._memory.extent(node)) for node in self._memory.inputs]
        if not (others or passed or views or captured or spans):
            return call

        def taken(inputs: list[Any]) -> list[Any]:
            inputs = [*captured, *inputs]
            for position, length, offset in spans:
                inputs[position] = view_of(inputs[position], (length,), (1,), offset)
            return inputs

        def complete(inputs: list[Any]) -> list[Any]:
            inputs = taken(inputs)
            outputs = call(inputs)
            for (position, view), whole in zip(views, outputs[count:], strict=False):
                outputs[position] = view.of(whole)
            del outputs[count : count + len(views)]
            for position, value in others:
                outputs[position] = value
            for position, place in passed:
                outputs[position] = inputs[place]
            return outputs

        if isinstance(call, _C.CompiledGraph):
            complete.prepare = lambda inputs: call.prepare(taken(inputs))  # type: ignore[attr-defined]
        return complete

    def make(self, *description: Any) -> Run:
        """Makes the callable for the graph: a compiled graph of the core."""
        return _C.CompiledGraph(*description)

    def described_bounds(self) -> Any:
        """The bounded dimensions in the form that the core takes."""
        if self._bounds is None:
            return None
        if any(self.has_bounded_dims(node) for node in self.written):
            raise UnboundedError("it writes an input of such a size")
        sizes = [(self._taken + i, self._bounds.capacity(size)) for i, size in enumerate(self._bounds.sizes)]
        given = [node for node, kind in zip(self.placeholders, self.kinds, strict=True) if kind != "-"]
        inputs = []
        for number, node in enumerate(given):
            if self.has_bounded_layout(node):
                value = node.meta["val"]
                inputs.append((number, self.dims_of(value), self._describe(node)[2]))
        return sizes, inputs, [self._result_dims.get(i) for i in range(len(self.nodes))]

    def _is_given_as_view(self, node: Node, shown: Mapping[Node, int]) -> bool:
        """Whether an output is a view of a value that the program returns or takes, as eager's result is. `shown`
        counts the outputs in the memory of each value."""
        if node in self._memory.inputs:
            return True
        owner = owner_of(node)
        if owner is node or not is_same_kind(node.meta["val"], owner.meta["val"]):
            return False
        is_input = owner.op == "placeholder"
        if (is_input and owner in self.written) or (not is_input and self._has_gaps(owner)):
            return False
        if is_input and not _is_tangent(owner):
            return True  # AOTAutograd makes it from the input, and reads this one's sizes and strides
        view = self._memory.view(node, owner)
        is_elsewhere = self._has_gaps(node) or view.offset != 0
        if view.is_symbolic:
            # Values stay padded if the difference cannot be observed.
            return is_elsewhere and (is_input or owner in self.outputs)
        return is_elsewhere or (shown[owner] > 1 and not is_input)

    def _is_view_with_gaps(self, node: Node) -> bool:
        return not self.has_bounded_layout(node) and owner_of(node) is not node and self._has_gaps(node)

    def _has_gaps(self, node: Node) -> bool:
        value = node.meta["val"]
        held = [
            (self.at_most(stride), self.at_most(size)) for stride, size in zip(value.stride(), value.shape, strict=True)
        ]
        return not is_dense([(stride, size) for stride, size in held if stride != 0])

    def _describe(self, node: Node) -> tuple[int, list[int], list[int]]:
        value = node.meta["val"]
        if node in self._memory.inputs and node in self.written:
            return SCALAR_TYPES[value.dtype], [self._memory.extent(node)[0]], [1]
        sizes, strides = [*map(self.at_most, value.shape)], [*map(self.at_most, value.stride())]
        is_sparse = self.has_bounded_layout(node) and not is_dense(list(zip(strides, sizes, strict=True)))
        if is_sparse or self._is_view_with_gaps(node):
            strides = list(torch.empty(sizes, device="meta").stride())
        return SCALAR_TYPES[value.dtype], sizes, strides

    # ---- nodes -----------------------------------------------------------------------------------

    def call(self, node: Node) -> None:
        operator = node.target
        if operator is COPY_ and isinstance(node.args[0], Node) and node.args[0].op == "placeholder":
            self._write(node)
        elif operator is AS_STRIDED or (operator is AS_STRIDED_COPY and not self._is_plain(node.args[0])):
            self.numbers[node] = self._memory.read(node)
        elif operator is AS_STRIDED_SCATTER and not self._is_plain(node.args[0]):
            self.numbers[node] = self._memory.write(node, node.args[1])
        elif isinstance(operator, HigherOrderOperator):
            self._call_higher_order(node, operator)
        elif isinstance(node.meta.get("val"), SYMBOLIC):
            pass  # arithmetic on sizes: `plain` evaluates it
        elif operator is python_operator.getitem or isinstance(operator, OpOverload):
            super().call(node)
            self._forget_unused(node)
        else:
            self._refuse(operator)

    def _forget_unused(self, node: Node) -> None:
        """Devices give unused results different shapes, such as the statistics of a batch norm, so their sizes are
        dropped."""
        known = self._result_dims.get(len(self.nodes) - 1)
        results = node.meta.get("val")
        if known is not None and isinstance(results, list | tuple) and len(known) == len(results):
            used = {user.args[1] for user in node.users}
            known[:] = [dims if i in used else None for i, dims in enumerate(known)]

    def _is_plain(self, node: Any) -> bool:
        """Whether a tensor covers all of its memory in row-major order."""
        return owner_of(node) is node and (self.has_bounded_layout(node) or node.meta["val"].is_contiguous())

    def _taken_whole(self, node: Node, number: int | None) -> int | None:
        """The number of an input's value. If the graph reads the memory of an input with gaps, the input includes
        them."""
        is_whole = number is not None and self._memory.is_read(node) and self._has_gaps(node)
        return self._memory.take(node, number) if is_whole else number  # type: ignore[arg-type]

    def _write(self, node: Node) -> None:
        target, source = node.args[:2]
        assert isinstance(target, Node)
        assert isinstance(source, Node)
        number = self.number(source)
        sizes = [self.plain(size) for size in target.meta["val"].shape]
        if sizes != [self.plain(size) for size in source.meta["val"].shape]:
            number = self.add("expand", [("self", ("v", number)), ("size", ("is", sizes))], 1)[0]
        if target in self._memory.inputs:
            number = self._memory.replaced(target, number)
        self.written[target] = number
        self.numbers[node] = number

    def call_operator(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> Numbers:
        if is_covered(operator):
            numbers = super().call_operator(operator, args, kwargs, results)
            if self._bounds is not None and name_of(operator) not in IDENTITIES:
                tensors = tree_flatten(results)[0]
                known = [self.dims_of(each) if isinstance(each, torch.Tensor) else None for each in tensors]
                self._result_dims[len(self.nodes) - 1] = known
            return numbers
        if operator in ALLOCATIONS:
            size = args[ALLOCATIONS[operator]]
            return self.call_operator(torch.ops.aten.full.default, (size, 0), {"dtype": results.dtype}, results)
        # An operator without a row: insert its decomposition, as eager traces it.
        listed = [value for _, value in arguments_of(operator, args, kwargs)]
        nodes = [each for value in listed for each in tree_flatten(value)[0] if _is_tensor(each)]
        if any(self.has_bounded_layout(node) for node in nodes) or any(self.is_bounded(each) for each in listed):
            traced = self._trace_symbolic(operator, args, kwargs, nodes)
        else:
            on_meta = [self._on_meta(each) for each in args]
            named = {name: self._on_meta(each) for name, each in kwargs.items()}
            traced = on_a_clean_thread(lambda: trace_graph(operator, tuple(on_meta), named, self._rows))
        inputs = [self.number(node) for node in nodes]
        outputs = iter(self.walk(traced.module, inputs))

        def numbers_of(value: Any) -> Any:
            if isinstance(value, list | tuple):
                return [numbers_of(each) for each in value]
            output = next(outputs)
            return None if output is None else self.number(output)

        return numbers_of(results)

    def call_kernel(self, operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Numbers:
        named = {name: self.plain(value) for name, value in kwargs.items()}
        return super().call_kernel(operator, self.plain(list(args)), named)

    def described(self, node: Node, takes_padding: bool = False) -> tuple[torch.dtype, tuple[int, ...]]:
        if self.has_bounded_layout(node) and not takes_padding:
            raise UnboundedError("a kernel without padding= has a program for each set of sizes")
        value = node.meta["val"]
        return value.dtype, tuple(self.at_most(size) for size in value.shape)

    def _trace_symbolic(
        self, operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], nodes: Sequence[Node]
    ) -> Traced:
        """The decomposition of a call with unknown sizes."""
        mode = next((node.meta["val"].fake_mode for node in nodes), None)
        if mode is None:
            raise UnboundedError(f"{operator} has no row")
        given, named = tree_map(symbolic, (tuple(args), dict(kwargs)))
        guards = Guards(mode.shape_env)

        def trace() -> Traced:
            with mode:
                return trace_fake(operator, given, named, self._rows)

        try:
            traced = on_a_clean_thread(trace)
        except Exception as error:
            kind = DependsOnSizesError if guards.forget_new() else UnboundedError
            raise kind(f"{operator} cannot be decomposed for all sizes: {error}") from error
        if guards.forget_new():
            raise DependsOnSizesError(f"the decomposition of {operator} depends on the sizes")
        return traced

    def _on_meta(self, value: Any) -> Any:
        value = self.plain(value)
        if isinstance(value, Node):
            return self._empty(value, "meta")
        if isinstance(value, list | tuple):
            return [self._on_meta(each) for each in value]
        return torch.device("meta") if isinstance(value, torch.device) else value

    def _call_higher_order(self, node: Node, operator: HigherOrderOperator) -> None:
        from torch._prims.rng_prims import run_and_save_rng_state, run_with_rng_state

        if operator is run_and_save_rng_state:
            state = self.add("torchtpu::random_state", [], 1)[0]
            results = self.call_operator(node.args[0], node.args[1:], node.kwargs, None)
            self.numbers[node] = [state, results]
        elif operator is run_with_rng_state:
            saved = self.number(node.args[0])  # type: ignore[arg-type]
            before = self.add("torchtpu::replay_random_state", [("state", ("v", saved))], 1)[0]
            self.numbers[node] = self.call_operator(node.args[1], node.args[2:], node.kwargs, None)
            self.add("torchtpu::resume_random_state", [("state", ("v", before))], 1)
        elif operator.name() == "cond" and not _is_tensor(node.args[0]):
            predicate, when_true, when_false, operands = node.args
            # The host knows the condition. A condition of a bounded size raises in `plain`, and the graph gets a
            # program for each set of sizes.
            self._call_inside(node, when_true if self.plain(predicate) else when_false, operands)
        elif operator.name() in FUNCTION_CALLERS:
            self._call_with_functions(node, operator.name(), FUNCTION_CALLERS[operator.name()])
        elif operator.name() == "invoke_subgraph":
            function, _, *operands = node.args
            self._call_inside(node, function, operands)
        elif operator.name() in DENSE_FORMS:
            self._call_dense_form(node, operator)
        else:
            self._refuse(operator)

    def _call_inside(self, node: Node, function: Any, operands: Any) -> None:
        """Adds the nodes of a called function to this graph."""
        module = attribute_of(function)
        kinds = [_kind_of(each.meta.get("val")) for each in module.graph.find_nodes(op="placeholder")]
        inputs = [None if kind == "-" else self.number(each) for kind, each in zip(kinds, operands, strict=True)]
        self.numbers[node] = [None if each is None else self.numbers.get(each) for each in self.walk(module, inputs)]

    def attribute(self, node: Node) -> None:
        if node not in self.numbers and not isinstance(attribute_of(node), GraphModule):
            # AOTAutograd's fake tensor mode is active here, but constants are real.
            on_a_clean_thread(functools.partial(super().attribute, node))

    def _call_with_functions(self, node: Node, name: str, parameters: Sequence[str]) -> None:
        arguments: list[tuple[str, Value]] = []
        taken: list[str] = []
        for parameter, argument in zip(parameters, node.args, strict=False):
            if _is_function_node(argument):
                function = GraphEncoder(attribute_of(argument), self._rows, self._sizes)  # type: ignore[arg-type]
                taken.append(function.kinds)
                arguments.append((parameter, ("g", function.encoded())))
            elif isinstance(argument, list | tuple):
                # Known numbers are constants of the functions.
                arguments.append((parameter, ("vs", [self.number(each) for each in argument if _is_tensor(each)])))
            else:
                arguments.append((parameter, ("v", self.number(argument))))  # type: ignore[arg-type]
        if any("n" in kinds for kinds in taken):
            self._refuse(node.target)
        self.numbers[node] = self.add(f"higher_order::{name}", arguments, len(node.meta["val"]))

    def _call_dense_form(self, node: Node, operator: HigherOrderOperator) -> None:
        flat, structure = tree_flatten((node.args, node.kwargs))
        tensors = [each for each in flat if _is_tensor(each)]
        values = [attribute_of(each) if _is_function_node(each) else self.plain(each) for each in flat]
        dense = getattr(importlib.import_module(type(operator).__module__), DENSE_FORMS[operator.name()])
        has_maximum = any(user.target is not python_operator.getitem or user.args[1] == 2 for user in node.users)

        def call(*given: torch.Tensor) -> list[torch.Tensor]:
            remaining = iter(given)
            args, kwargs = tree_unflatten([next(remaining) if _is_tensor(each) else each for each in values], structure)
            name = operator.name()
            form = flex.form_of(name, args, has_maximum) or blocks.form_of(name, args) or dense
            return [each for each in tree_flatten(form(*args, **kwargs))[0] if isinstance(each, torch.Tensor)]

        def trace() -> GraphModule:
            # Loops need a shape environment.
            with FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv()):
                fakes = [self._empty(each, each.meta["val"].device) for each in tensors]
                return make_fx(call)(*fakes)

        traced = on_a_clean_thread(trace)
        results = iter(self.walk(traced, [self.number(each) for each in tensors]))

        def number_of(value: Any) -> int | None:
            result = next(results) if isinstance(value, torch.Tensor) else None
            return None if result is None else self.number(result)

        self.numbers[node] = tree_map(number_of, node.meta["val"])

    def _empty(self, node: Node, device: torch.device | str) -> torch.Tensor:
        tensor = node.meta["val"]
        sizes, strides = [[self.plain(each) for each in of] for of in (tensor.shape, tensor.stride())]
        return torch.empty_strided(sizes, strides, dtype=tensor.dtype, device=device)

    def encoded(self) -> Encoded:
        """The graph with all of its outputs as results."""
        extra = 0 if self._bounds is None else len(self._bounds)
        return self._taken + extra, self.nodes, [self.number(each) for each in self.outputs]  # type: ignore[arg-type]

    def _refuse(self, operator: Any) -> None:
        raise NotImplementedError(f"torch.compile: a graph calls {operator}, which tpu programs cannot")


# The source of an output that is not a tensor.
_NOTHING = -(2**31)


def _is_tensor(value: Any) -> TypeGuard[Node]:
    return isinstance(value, Node) and isinstance(value.meta.get("val"), torch.Tensor)


def _is_tangent(node: Node) -> bool:
    """Whether an input is a gradient given to a backward graph, by PyTorch's naming."""
    return "tangents" in str(node.target)


def _is_function_node(value: Any) -> bool:
    return isinstance(value, Node) and value.op == "get_attr"


def _is_on_host(node: Node) -> bool:
    return _is_tensor(node) and node.meta["val"].device.type == "cpu"


def _kind_of(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "t"
    # Sizes are constants of a program: there is one program for each size.
    return "n" if isinstance(value, float | torch.SymFloat) else "-"


def _is_large(value: Any) -> bool:
    """Whether a constant is too large for the text of a program."""
    return isinstance(value, torch.Tensor) and (value.numel() > MAX_CONSTANT or value.is_complex())
