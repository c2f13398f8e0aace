"""Operators on tensors that are not dense for which PyTorch's own kernels do not work.

`csrc/layouts.cpp` registers PyTorch's kernels that work on any device, and calls `call` for the other operators of
sparse tensors and for a few of nested ones.

A kernel is registered under its operator's name, with the overload ("add.out"), or without it ("addmm") if it
implements all forms. It then returns a new tensor, and `call` writes it for in-place forms and out=.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchtpu.operators import nested
from torchtpu.operators.sparse import compressed, coo


def call(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator that was called with sparse or nested tensors."""
    name = operator._schema.name.removeprefix("aten::")
    table = _kernels(_tensors(args, kwargs))
    exact = table.get(f"{name}.{operator._schema.overload_name}")
    if exact is not None:
        return exact(*args, **kwargs)
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    kernel = table.get(base)
    if kernel is None:
        raise NotImplementedError(_refusal(name, args, kwargs))
    written = [argument.name for argument in operator._schema.arguments if argument.is_out]
    outs = [kwargs[name] for name in written]
    result = kernel(*args, **{name: value for name, value in kwargs.items() if name not in written})
    if base != name:
        return coo.write(args[0], result)
    if not outs:
        return result
    results = (result,) if len(outs) == 1 else result
    given = tuple(coo.write(out, one) for out, one in zip(outs, results, strict=True))
    return given[0] if len(given) == 1 else given


def _kernels(tensors: list[Tensor]) -> dict[str, Any]:
    """The kernels for the layout of these tensors."""
    if any(tensor.is_nested for tensor in tensors):
        return nested.KERNELS
    return compressed.KERNELS if any(map(coo.is_compressed, tensors)) else coo.KERNELS


def _tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor]:
    found = []
    for value in (*args, *kwargs.values()):
        found += [each for each in (value if isinstance(value, list | tuple) else (value,)) if isinstance(each, Tensor)]
    return found


def _refusal(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    described = ", ".join(
        f"{tensor.device} {str(tensor.layout).removeprefix('torch.')} {str(tensor.dtype).removeprefix('torch.')}"
        f"{list(tensor.shape)}"
        for tensor in _tensors(args, kwargs)
    )
    return f"{name}: not supported for sparse tensors ({described}). Call .to_dense() on them first"
