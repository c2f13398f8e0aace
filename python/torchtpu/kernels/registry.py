"""The operators that are kernels, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch._ops import OpOverload

# From an operator's arguments to its tensors and the call. Any object at a position of a tensor counts as a tensor.
Parse = Callable[[Sequence[Any]], tuple[list[Any], Any]]
parsers: dict[str, Parse] = {}


def is_kernel(operator: OpOverload) -> bool:
    """Whether an operator is a kernel."""
    return operator._schema.name in parsers


def parse(operator: OpOverload, values: Sequence[Any]) -> tuple[list[Any], Any]:
    """The tensors and the call in an operator's arguments, which are in the schema's order."""
    return parsers[operator._schema.name](values)
