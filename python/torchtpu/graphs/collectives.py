"""Functional collectives as rows, in a graph that all ranks run as one program of as many replicas.

The text of such a program is the same on all ranks, so a group must be one of equal groups that cover all ranks in a
regular way: ranks that follow each other by a stride, as the groups of a mesh do.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch._ops import OpOverload
from torch.fx import Node

from torchtpu.graphs.encoder import Encoder, Numbers, Value

NAMESPACE = "_c10d_functional"

# The collectives that are rows, and the rows.
ROWS = {
    "all_reduce": "torchtpu::all_reduce",
    "reduce_scatter_tensor": "torchtpu::reduce_scatter",
    "all_gather_into_tensor": "torchtpu::all_gather",
    "all_to_all_single": "torchtpu::all_to_all",
}


def is_collective(operator: Any) -> bool:
    """Whether an operator is a functional collective, or waits for one."""
    return isinstance(operator, OpOverload) and operator.namespace == NAMESPACE


def encode(encoder: Encoder, operator: OpOverload, args: Sequence[Any]) -> Numbers:
    """Records a functional collective. Raises NotImplementedError for those that no program of all ranks has."""
    name = operator._opname.removesuffix("_")
    if name == "wait_tensor":
        return encoder.number(args[0])
    if name == "wait_tensors":
        return [encoder.number(each) for each in args[0]]
    if name.endswith("_coalesced"):
        one = name.removesuffix("_coalesced")
        return [_encode(encoder, one, each, args[1:]) for each in args[0]]
    return _encode(encoder, name, args[0], args[1:])


def _encode(encoder: Encoder, name: str, tensor: Node, args: Sequence[Any]) -> int:
    if name not in ROWS:
        raise NotImplementedError(f"{NAMESPACE}.{name} cannot be part of a program of all ranks")
    ranks, world = _members(args[-1])
    given: list[tuple[str, Value]] = [("input", ("v", encoder.number(tensor)))]
    groups: list[tuple[str, Value]] = [("groups", ("is", groups_like(ranks, world))), ("group_size", ("i", len(ranks)))]
    if name in ("all_reduce", "reduce_scatter_tensor"):
        given.append(("reduce_op", ("s", args[0])))
    elif name == "all_to_all_single" and len({*args[0], *args[1]}) > 1:
        raise NotImplementedError("an all_to_all of uneven parts cannot be part of a program of all ranks")
    return encoder.add(ROWS[name], [*given, *groups], 1)[0]


def _members(group_name: str) -> tuple[list[int], int]:
    """The ranks of a group, and the number of all ranks."""
    from torch import distributed
    from torch._C._distributed_c10d import _resolve_process_group

    group: distributed.ProcessGroup = _resolve_process_group(group_name)  # type: ignore[arg-type]
    return distributed.get_process_group_ranks(group), distributed.get_world_size()


def groups_like(ranks: Sequence[int], world: int) -> list[int]:
    """The equal groups that cover all ranks and of which one is `ranks`, one after another. Empty if that is the only
    one.

    Raises NotImplementedError if the ranks do not follow each other by a stride, or if such groups do not cover all.
    """
    size = len(ranks)
    if list(ranks) == list(range(world)):
        return []
    stride = ranks[1] - ranks[0] if size > 1 else 1
    block = stride * size
    regular = stride > 0 and list(ranks) == [ranks[0] + stride * i for i in range(size)]
    if not regular or world % block or ranks[0] % block >= stride:
        raise NotImplementedError(
            f"the group of ranks {list(ranks)} is not one of equal groups that cover {world} ranks by a stride: its "
            f"collectives cannot be part of a program of all ranks"
        )
    return [first + at + stride * i for first in range(0, world, block) for at in range(stride) for i in range(size)]
