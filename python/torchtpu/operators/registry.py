"""The registry of this package's decompositions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

EXTRA: dict[Any, Callable[..., Any]] = {}
"""By operator."""


def find(name: str) -> Any:
    """The operator with a name such as "prims::rev" or "aten::empty.memory_format", if this torch has it."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    return getattr(packet, overload or "default", None)


def register(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            operator = find(name)
            if operator is not None:
                EXTRA[operator] = function
        return function

    return add
