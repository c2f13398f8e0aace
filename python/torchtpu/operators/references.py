"""PyTorch's references in Python, without an import of Dynamo.

The sizes of many results (of relu, abs, layer_norm, ...) come from meta kernels that PyTorch wrote in Python. They
have the decorator `torch._disable_dynamo`, which imports Dynamo at the first call: that takes more than a second, in
each process, and a script in an eager mode has no other use for Dynamo. As long as Dynamo is not imported there is
nothing to disable, so the function itself can be called.

The decorator keeps what it calls in an attribute of the function, `__dynamo_disable`. `call_directly` sets it to the
function. `call_with_dynamo` removes it when Dynamo is imported; then the decorator does what it always does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch

_ATTRIBUTE = "__dynamo_disable"
_changed: list[Callable[..., Any]] = []


def call_directly() -> None:
    """Has PyTorch's decorated references called directly, until `call_with_dynamo`. Does nothing where Dynamo is
    imported already."""
    if "torch._dynamo" in sys.modules:
        return
    for function in _decorated():
        if not hasattr(function, _ATTRIBUTE):
            setattr(function, _ATTRIBUTE, function)
            _changed.append(function)


def call_with_dynamo() -> None:
    """Leaves PyTorch's references as they were."""
    while _changed:
        delattr(_changed.pop(), _ATTRIBUTE)


def _decorated() -> Iterator[Callable[..., Any]]:
    """Functions with the decorator, among PyTorch's decompositions and what these call."""
    from torch._decomp import global_decomposition_table

    decorator = getattr(torch, "_disable_dynamo", None)
    if decorator is None:
        return
    # All decorated functions have the same code; what was decorated is its variable `fn`.
    code = decorator(_decorated).__code__
    seen: set[int] = set()
    waiting = [function for table in global_decomposition_table.values() for function in table.values()]
    waiting += [value for value in vars(torch._refs).values() if callable(value)]
    while waiting:
        function = waiting.pop()
        if id(function) in seen or not hasattr(function, "__code__"):
            continue
        seen.add(id(function))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=False))
        inner = [cell.cell_contents for cell in cells.values() if _is_function(cell)]
        if function.__code__ is code and _is_function(cells["fn"]):
            yield cells["fn"].cell_contents
        waiting += inner


def _is_function(cell: Any) -> bool:
    try:
        return callable(cell.cell_contents)
    except ValueError:  # not assigned yet
        return False
