"""Which operators are kernels', and what they call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._ops import OpOverload

# From the arguments of an operator to its tensors and the call. Whatever stands where the schema has a tensor is one.
Parse = Callable[[Sequence[Any]], tuple[list[Any], Any]]
parsers: dict[str, Parse] = {}


def is_kernel(operator: OpOverload) -> bool:
    """Whether an operator is a kernel's."""
    return operator._schema.name in parsers


def parse(operator: OpOverload, values: Sequence[Any]) -> tuple[list[Any], Any]:
    """The tensors and the call of an operator's arguments, which are in the schema's order."""
    return parsers[operator._schema.name](values)
