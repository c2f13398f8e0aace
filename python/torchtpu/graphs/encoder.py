"""From a graph of operators to the plain tuples that the core takes; decompositions and compiled graphs share this.

    (number of inputs, [(operator, [(argument, value), …], number of results), …], [result or None, …])

A value is None or one of

    ("v", k)            the tensor with number k: inputs first, then the results of each node in order
    ("vs", [k or None]) a list of tensors
    ("i", int)  ("f", float)  ("b", bool)  ("s", str)   ("is", [...])  ("fs", [...])  ("bs", [...])  ("ns", [...])
    ("n", number)       a Scalar, or a number where a tensor could stand: int, float, bool or complex
    ("d", number)       a dtype, as c10::ScalarType numbers it
    ("g", graph)        a function that the operator calls, as such a triple

A constant that a decomposition captured is a node named "torchtpu::constant" with data, size and dtype.
"""

from __future__ import annotations

import operator as python_operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from torchtpu import _C
from torchtpu.graphs.names import name_of
from torchtpu.graphs.tracing import IDENTITIES, Traced, arguments_of
from torchtpu.kernels.registry import is_kernel, parse

Value = tuple[str, Any] | None
Encoded = tuple[int, list[tuple[str, list[tuple[str, Value]], int]], list[int | None]]
# XLA options of a program: (name, value), ordered by name.
Flag = bool | int | float | str
Flags = tuple[tuple[str, Flag], ...]
# The numbers of a node's results: one number, or a list for an operator that returns several.
Numbers = Any

MAX_CONSTANT = 1024

# c10::ScalarType. Older versions of PyTorch lack the newest dtypes.
SCALAR_TYPES: dict[torch.dtype, int] = {
    getattr(torch, name): number for name, (number, _) in _C.scalar_types().items() if hasattr(torch, name)
}

# c10::MemoryFormat.
MEMORY_FORMATS: dict[torch.memory_format, int] = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}

# Arguments that never affect a program.
LEFT_OUT = ("device", "layout", "pin_memory", "generator")


def encode(traced: Traced) -> Encoded:
    """The graph in the form that the core takes."""
    encoder = Encoder()
    inputs = len(traced.module.graph.find_nodes(op="placeholder"))
    outputs = encoder.walk(traced.module, encoder.new_numbers(inputs))
    return inputs, encoder.nodes, [None if each is None else encoder.number(each) for each in outputs]


class Encoder:
    """Numbers the values of graphs and records their nodes."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[tuple[str, Value]], int]] = []
        self.numbers: dict[Node, Numbers] = {}
        self._count = 0

    def new_numbers(self, count: int) -> list[int]:
        """The next numbers: first for inputs, then for the results of nodes in order."""
        numbers = list(range(self._count, self._count + count))
        self._count += count
        return numbers

    def walk(self, module: GraphModule, inputs: Iterable[int | None]) -> list[Node | None]:
        """Records a graph whose placeholders have the numbers `inputs`. Returns the nodes of its results."""
        remaining = iter(inputs)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                self.numbers[node] = next(remaining)
            elif node.op == "get_attr":
                self.attribute(node)
            elif node.op == "call_function":
                self.call(node)
        returned: Any = module.graph.output_node().args[0]
        return list(returned) if isinstance(returned, list | tuple) else [returned]

    def number(self, node: Node) -> int:
        """The number of a node's single result. Nodes with several results are read through getitem."""
        return int(self.numbers[node])

    def add(self, name: str, arguments: list[tuple[str, Value]], results: int) -> list[int]:
        """Records one node and returns the numbers of its results."""
        self.nodes.append((name, arguments, results))
        return self.new_numbers(results)

    def attribute(self, node: Node) -> None:
        """A constant that the graph captured."""
        value = attribute_of(node)
        if not isinstance(value, torch.Tensor) or value.is_meta or value.numel() > MAX_CONSTANT:
            raise NotImplementedError(f"a decomposition captured {value!r:.80} as a constant")
        value = value.detach().cpu()
        if value.dtype.is_complex:
            raise NotImplementedError("a decomposition captured a complex constant")
        number_kind = "fs" if value.dtype.is_floating_point else "is"
        data = value.double().flatten().tolist() if number_kind == "fs" else value.long().flatten().tolist()
        arguments: list[tuple[str, Value]] = [
            ("data", (number_kind, data)),
            ("size", ("is", list(value.shape))),
            ("dtype", ("d", SCALAR_TYPES[value.dtype])),
        ]
        self.numbers[node] = self.add("torchtpu::constant", arguments, 1)[0]

    def call(self, node: Node) -> None:
        """Records a node that calls something."""
        if node.target is python_operator.getitem:
            source, index = node.args
            assert isinstance(source, Node)
            self.numbers[node] = self.numbers[source][index]
        else:
            self.numbers[node] = self.call_operator(node.target, node.args, node.kwargs, node.meta.get("val"))

    def call_operator(self, operator: Any, args: Sequence[Any], kwargs: Mapping[str, Any], results: Any) -> Numbers:
        """Records the call of an operator. `results` is its return value, which gives the number of results."""
        if not isinstance(operator, OpOverload):
            raise NotImplementedError(f"a decomposition calls {operator}, which is not an operator")
        name = name_of(operator)
        if name in IDENTITIES:
            return self.numbers[args[0]]
        if is_kernel(operator):
            return self.call_kernel(operator, args, kwargs)
        first = self._count
        arguments = self._arguments(operator, args, kwargs)
        numbers = self._number_results(operator, results)
        self.nodes.append((name, arguments, self._count - first))
        return numbers

    def call_kernel(self, operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Numbers:
        """Records the call of a kernel. Its module becomes part of the program."""
        from torchtpu.kernels.lowering import add_call

        tensors, call = parse(operator, [value for _, value in arguments_of(operator, args, kwargs)])
        takes_padding = call.kernel.padding is not None
        numbers = add_call(self, call, [(self.number(each), *self.described(each, takes_padding)) for each in tensors])
        returns = operator._schema.returns
        return numbers[0] if [str(each.type) for each in returns] == ["Tensor"] else numbers

    def described(self, node: Node, takes_padding: bool = False) -> tuple[torch.dtype, tuple[int, ...]]:
        """The dtype and the shape of a node's tensor: of sizes that change the capacities if a kernel takes padding."""
        value = node.meta["val"]
        return value.dtype, tuple(value.shape)

    def _number_results(self, operator: OpOverload, results: Any) -> Numbers:
        returns = operator._schema.returns
        each_result = [results] if len(returns) == 1 else results or [None] * len(returns)
        numbers = [
            self.new_numbers(len(result)) if str(schema.type) == "List[Tensor]" else self.new_numbers(1)[0]
            for schema, result in zip(returns, each_result, strict=True)
        ]
        return numbers[0] if len(returns) == 1 else numbers

    def _arguments(
        self, operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> list[tuple[str, Value]]:
        return [
            (argument.name, self.value(value, argument))
            for argument, value in arguments_of(operator, args, kwargs)
            if argument.name not in LEFT_OUT
        ]

    def value(self, value: Any, argument: Any) -> Value:
        """One argument of a node."""
        kind = str(argument.type)
        kind = kind.removeprefix("Optional[").removesuffix("]") if kind.startswith("Optional[") else kind
        if value is None:
            return None
        if isinstance(value, Node):
            return ("v", self.number(value))
        if isinstance(value, torch.dtype):
            return ("d", SCALAR_TYPES[value])
        if isinstance(value, torch.memory_format):
            return ("i", MEMORY_FORMATS[value])
        if kind == "Tensor":
            return ("n", value)  # a Python number in the position of a tensor
        if kind in ("List[Tensor]", "List[Optional[Tensor]]"):
            return ("vs", [None if each is None else self.number(each) for each in value])
        if kind.startswith("List["):
            element = kind.removeprefix("List[").removesuffix("]")
            listed = list(value) if isinstance(value, list | tuple) else [value] * (argument.N or 1)
            if element in ("int", "SymInt"):
                return ("is", [int(each) for each in listed])
            if element == "float":
                return ("fs", [float(each) for each in listed])
            if element == "bool":
                return ("bs", [bool(each) for each in listed])
            if element in ("number", "Scalar"):
                return ("ns", listed)
        elif kind in ("number", "Scalar"):
            return ("n", value)
        elif kind == "bool":
            return ("b", bool(value))
        elif kind == "float":
            return ("f", float(value))
        elif kind in ("int", "SymInt"):
            return ("i", int(value))
        elif kind == "str":
            return ("s", str(value))
        raise NotImplementedError(f"a decomposition passes {value!r:.60} as the {kind} {argument.name}")


def attribute_of(node: Node) -> Any:
    """The value of a get_attr node."""
    value: Any = node.graph.owning_module
    for part in str(node.target).split("."):
        value = getattr(value, part)
    return value
