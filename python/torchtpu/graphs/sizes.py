"""An encoder of graphs with symbolic sizes, which may be unknown until the graph runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node
from torch.utils._pytree import tree_flatten

from torchtpu.graphs.bounds import Bounds, SizeOf, UnboundedError
from torchtpu.graphs.encoder import Encoder, Value
from torchtpu.graphs.tracing import arguments_of

SYMBOLIC = (torch.SymInt, torch.SymBool, torch.SymFloat)

# The values of a graph's symbolic sizes.
Sizes = Mapping[Any, int]


class SizeEncoder(Encoder):
    """Resolves symbolic sizes: they have the values in `sizes`, or are bounded."""

    def __init__(self, sizes: Sizes, bounds: Bounds | None) -> None:
        super().__init__()
        self._sizes = sizes
        self._bounds = bounds
        # The number of inputs before the sizes and numbers of a bounded graph.
        self._taken = 0

    def number_sizes(self, module: GraphModule) -> None:
        """Numbers the inputs after the others: all unknown sizes of a graph, and the values that its operators
        take as numbers."""
        bounds = self._bounds
        if bounds is None:
            return
        for node in module.graph.nodes:
            for each in tree_flatten(node.meta.get("val"))[0]:
                for size in each.shape if isinstance(each, torch.Tensor) else [each]:
                    if isinstance(size, torch.SymInt) and not is_ragged(size):
                        bounds.size_of(size.node.expr)
            if isinstance(node.target, OpOverload):
                for argument, value in arguments_of(node.target, node.args, node.kwargs):
                    size = symbolic(value)
                    is_given = isinstance(size, torch.SymInt | torch.SymFloat) and _is_number(str(argument.type))
                    if is_given and bounds.known(size.node.expr).free_symbols:
                        bounds.number(size.node.expr)
        self.new_numbers(bounds.complete())

    def plain(self, value: Any) -> Any:
        """A value in which symbolic numbers, and nodes that compute them, are replaced by their values."""
        if isinstance(value, Node):
            known = value.meta.get("val")
            return value if self.numbers.get(value) is not None else self.plain(known)
        if isinstance(value, list | tuple):
            return type(value)(self.plain(each) for each in value)
        if self.is_bounded(value):
            raise UnboundedError(f"{value} must be known")
        if isinstance(value, torch.SymInt):
            return int(self._evaluate(value))
        if isinstance(value, torch.SymBool):
            return bool(self._evaluate(value))
        if isinstance(value, torch.SymFloat):
            return float(self._evaluate(value))
        return value

    def known(self, value: Any) -> Any:
        """The same, but sizes that are unknown before the graph runs become expressions."""
        if isinstance(value, tuple):
            return tuple(self.known(each) for each in value)
        if self.is_bounded(value):
            assert self._bounds is not None
            return self._bounds.known(value.node.expr)
        return self.plain(value)

    def _evaluate(self, value: Any) -> Any:
        return value.node.expr.xreplace(self._sizes) if value.node.constant is None else value.node.constant

    def is_bounded(self, value: Any) -> bool:
        """Whether a value is, or contains, a size that is unknown before the graph runs."""
        if self._bounds is None:
            return False
        if isinstance(value, list | tuple):
            return any(self.is_bounded(each) for each in value)
        value = symbolic(value)
        if not isinstance(value, SYMBOLIC) or value.node.constant is not None:
            return False
        return bool(self._bounds.known(value.node.expr).free_symbols)

    def has_bounded_dims(self, node: Node) -> bool:
        value = node.meta.get("val")
        return isinstance(value, torch.Tensor) and self.is_bounded(tuple(value.shape))

    def has_bounded_layout(self, node: Node) -> bool:
        """Whether the sizes or strides are unknown before the graph runs."""
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor):
            return False
        return self.is_bounded((*value.shape, *value.stride(), value.storage_offset()))

    def at_most(self, value: Any) -> int:
        """The largest value of a size or a stride."""
        if self.is_bounded(value):
            assert self._bounds is not None
            return self._bounds.capacity(value.node.expr)
        return int(self.plain(value))

    def _size_of(self, value: Any) -> SizeOf:
        value = symbolic(value)
        if self.is_bounded(value):
            assert self._bounds is not None
            return self._bounds.size_of(value.node.expr)
        return int(self.plain(value)), []

    def capacity_of(self, number: int) -> int:
        """The capacity of one of the sizes."""
        assert self._bounds is not None
        return self._bounds.capacity(self._bounds.sizes[number])

    def dims_of(self, value: torch.Tensor) -> list[SizeOf]:
        return [self._size_of(size) for size in value.shape]

    def _bounded_value(self, value: Any, kind: str) -> Value:
        """An argument with sizes that are unknown before the graph runs."""
        assert self._bounds is not None
        if "List[" in kind and ("int" in kind or "SymInt" in kind):
            return ("zs", [self._size_of(each) for each in (value if isinstance(value, list | tuple) else [value])])
        value = symbolic(value)
        if isinstance(value, torch.SymInt) and ("int" in kind or "SymInt" in kind):
            return ("z", self._size_of(value))
        if _is_number(kind) and isinstance(value, torch.SymInt | torch.SymFloat):
            return ("v", self._taken + len(self._bounds.sizes) + self._bounds.number(value.node.expr))
        raise UnboundedError(f"{value} is taken as {kind}")

    def value(self, value: Any, argument: Any) -> Value:
        if self.is_bounded(value):
            return self._bounded_value(value, str(argument.type))
        return super().value(self.plain(value), argument)


def is_ragged(size: torch.SymInt) -> bool:
    """Whether a symbol is a nested tensor's ragged dimension. It has no number, and nothing computes with it."""
    return bool(size.node.is_nested_int())


def symbolic(value: Any) -> Any:
    """The number that a node computes; other values are returned unchanged."""
    return value.meta.get("val") if isinstance(value, Node) else value


def _is_number(kind: str) -> bool:
    return any(each in kind for each in ("Tensor", "number", "Scalar"))
