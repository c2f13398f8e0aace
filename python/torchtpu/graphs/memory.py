"""Finds which values of a graph are views of which, and what `as_strided` reads in the memory of a value."""

from __future__ import annotations

import dataclasses
import operator as python_operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule, Node

from torchtpu.graphs.encoder import SCALAR_TYPES, Value

if TYPE_CHECKING:
    from torchtpu.graphs.graph_encoder import GraphEncoder

AS_STRIDED = torch.ops.aten.as_strided.default
AS_STRIDED_COPY = torch.ops.aten.as_strided_copy.default
AS_STRIDED_SCATTER = torch.ops.aten.as_strided_scatter.default

# Sizes, strides, and the offset from the start of the memory.
Place = tuple[Any, Any, Any]


@dataclasses.dataclass(frozen=True)
class View:
    """The position of a value in another value's memory, relative to that value's first element. Values that are
    unknown before the graph runs are expressions of the sizes."""

    owner: Node
    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    # Whether elements are the real or imaginary parts of a complex owner.
    is_part: bool

    @property
    def is_symbolic(self) -> bool:
        return not all(isinstance(each, int) for each in (*self.sizes, *self.strides, self.offset))

    def at(self, values: Mapping[Any, int]) -> View:
        """The same view with known sizes."""

        def known(value: Any) -> int:
            return value if isinstance(value, int) else int(value.xreplace(values))

        sizes, strides = (tuple(map(known, each)) for each in (self.sizes, self.strides))
        return View(self.owner, sizes, strides, known(self.offset), self.is_part)

    def of(self, owner: torch.Tensor) -> torch.Tensor:
        return view_of(torch.view_as_real(owner) if self.is_part else owner, self.sizes, self.strides, self.offset)


class Memory:
    """The memory of values that a graph reads by position: as flat values, including gaps."""

    def __init__(self, encoder: GraphEncoder, module: GraphModule) -> None:
        self._encoder = encoder
        self._looks = [
            node
            for target in (AS_STRIDED, AS_STRIDED_COPY, AS_STRIDED_SCATTER)
            for node in module.graph.find_nodes(op="call_function", target=target)
        ]
        # The number of each flat value, and its range in memory.
        self._flat: dict[Node, int] = {}
        self._spans: dict[Node, tuple[int, int]] = {}
        # Inputs that are taken as flat values.
        self.inputs: set[Node] = set()

    def is_read(self, root: Node) -> bool:
        return any(True for _ in self._readers(root))

    def take(self, node: Node, number: int) -> int:
        """Takes an input as a flat value with this number. Returns the number of its value."""
        self.inputs.add(node)
        self._flat[node] = number
        self._spans[node] = self._span_of(node)
        return self._at("as_strided", node, _place_of(node), ("self", number))

    def extent(self, node: Node) -> tuple[int, int]:
        """The length of the memory taken from an input, and its start relative to the first element."""
        low, high = self._spans[node]
        return high - low, low - self._encoder.plain(node.meta["val"].storage_offset())

    def read(self, node: Node) -> int:
        """Encodes an `as_strided` and returns its number."""
        owner = owner_of(node.args[0])  # type: ignore[arg-type]
        return self._at("as_strided", owner, _accessed(node), ("self", self._flat_of(owner)))

    def write(self, node: Node, source: Any) -> int:
        """Encodes an `as_strided_scatter` and returns its number. Its result is a copy of the memory."""
        viewed: Any = node.args[0]
        owner = owner_of(viewed)
        tensors = (("self", self._flat_of(owner)), ("src", self._encoder.number(source)))
        self._spans[node] = self._spans[owner]
        self._flat[node] = self._at("as_strided_scatter", owner, _accessed(node), *tensors)
        return self._at("as_strided", node, _place_of(viewed), ("self", self._flat[node]))

    def replaced(self, owner: Node, number: int) -> int:
        """The flat memory of an owner after a write of its value."""
        return self._at("as_strided_scatter", owner, _place_of(owner), ("self", self._flat[owner]), ("src", number))

    def view(self, node: Node, owner: Node) -> View:
        """The view of a value in another value that the program returns or takes."""
        value, whole, known = node.meta["val"], owner.meta["val"], self._encoder.known
        begin = self._spans[owner][0] if owner in self.inputs else known(whole.storage_offset())
        is_part = whole.is_complex() and not value.is_complex()
        offset = known(value.storage_offset()) - begin * (2 if is_part else 1)
        return View(owner, known(tuple(value.shape)), known(value.stride()), offset, is_part)

    def _readers(self, root: Node) -> Iterator[Node]:
        return (node for node in self._looks if root_of(node.args[0]) is root)

    def _span_of(self, root: Node) -> tuple[int, int]:
        """The range of a root's memory that the graph reads."""
        plain = self._encoder.plain
        low = plain(root.meta["val"].storage_offset())
        high = low + 1
        for place in (_place_of(root), *map(_accessed, self._readers(root))):
            sizes, strides, offset = plain(place)
            if 0 not in sizes:
                reach = sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))
                low, high = min(low, offset), max(high, offset + reach + 1)
        return low, high

    def _flat_of(self, owner: Node) -> int:
        """The number of an owner's flat memory. Its gaps are zeros, because nothing was written there."""
        if owner in self._flat:
            return self._flat[owner]
        value, number, plain = owner.meta["val"], self._encoder.number(owner), self._encoder.plain
        held = list(zip(plain(value.stride()), plain(value.shape), strict=True))
        if is_dense(held):
            begin = plain(value.storage_offset())
            order = sorted(range(len(held)), key=lambda axis: (-held[axis][0], axis))
            self._spans[owner] = (begin, begin + value.numel())
            permuted: list[tuple[str, Value]] = [("self", ("v", number)), ("dims", ("is", order))]
            self._flat[owner] = self._encoder.add("permute", permuted, 1)[0]
        else:
            low, high = self._spans[owner] = self._span_of(owner)
            dtype = SCALAR_TYPES[value.dtype]
            zeros: list[tuple[str, Value]] = [
                ("size", ("is", [high - low])),
                ("fill_value", ("n", 0)),
                ("dtype", ("d", dtype)),
            ]
            self._flat[owner] = self._encoder.add("full", zeros, 1)[0]
            self._flat[owner] = self.replaced(owner, number)
        return self._flat[owner]

    def _at(self, name: str, owner: Node, place: Place, *tensors: tuple[str, int]) -> int:
        """`as_strided` or `as_strided_scatter` at a position of an owner's flat memory."""
        sizes, strides, offset = self._encoder.plain(place)
        arguments: list[tuple[str, Value]] = [
            *((argument, ("v", number)) for argument, number in tensors),
            ("size", ("is", list(sizes))),
            ("stride", ("is", list(strides))),
            ("storage_offset", ("i", offset - self._spans[owner][0])),
        ]
        return self._encoder.add(name, arguments, 1)[0]


def owner_of(node: Node) -> Node:
    """The node whose memory a node is a view of; the node itself if it is not a view."""
    while True:
        # The results of a view operator with several results are read with getitem.
        source = node.args[0] if node.target is python_operator.getitem else node
        if not isinstance(source, Node) or not isinstance(source.target, OpOverload) or not source.target.is_view:
            return node
        node = source.args[0]  # type: ignore[assignment]


def root_of(node: Node) -> Node:
    """The node whose memory, or a copy of it with all gaps, a node is a view of."""
    node = owner_of(node)
    while node.target is AS_STRIDED_SCATTER:
        node = owner_of(node.args[0])  # type: ignore[arg-type]
    return node


def is_dense(held: Sequence[tuple[int, int]]) -> bool:
    """Whether dimensions, given as (stride, size), have no gaps."""
    expected = 1
    for stride, size in sorted(held):
        if size > 1 and stride != expected:
            return any(size == 0 for _, size in held)
        expected *= size
    return True


def is_same_kind(value: torch.Tensor, whole: torch.Tensor) -> bool:
    """Whether a view has the elements of a value's memory, or the parts of complex elements, unchanged."""
    is_plain = value.is_conj() == whole.is_conj() and value.is_neg() == whole.is_neg()
    return is_plain and (value.dtype == whole.dtype or value.dtype == whole.dtype.to_real())


def view_of(whole: torch.Tensor, sizes: Any, strides: Any, offset: int) -> torch.Tensor:
    """A tensor in another's memory, relative to its first element. For autograd it is not a view."""
    return torch._C._dynamo.guards._reinterpret_tensor(whole, sizes, strides, offset)  # type: ignore[attr-defined]


def _place_of(node: Node) -> Place:
    """The position of a value in memory."""
    value = node.meta["val"]
    return value.shape, value.stride(), value.storage_offset()


def _accessed(node: Node) -> Place:
    """The position that an `as_strided` reads or an `as_strided_scatter` writes."""
    viewed: Any = node.args[0]
    sizes, strides, offset = (*node.args[2 if node.target is AS_STRIDED_SCATTER else 1 :], None)[:3]
    return sizes, strides, viewed.meta["val"].storage_offset() if offset is None else offset
