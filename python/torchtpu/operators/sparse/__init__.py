"""Operators on sparse tensors for which PyTorch's own kernels do not work.

`csrc/layouts.cpp` registers PyTorch's kernels that work on any device, and calls `call` for all other operators. A
kernel here is a short function of the dense tensors inside, which are on the device, so everything is computed
there. `coo.py` has the kernels of COO tensors, `compressed.py` those of CSR, CSC, BSR and BSC. A size that depends
on data is read once.

A kernel is registered under its operator's name, with the overload ("add.out"), or without it ("addmm") if it
implements all forms. It then returns a new tensor, and `call` writes it for in-place forms and out=.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from torchtpu.operators.sparse import compressed, coo


def call(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of an operator that was called with sparse tensors."""
    name = operator._schema.name.removeprefix("aten::")
    table = compressed.KERNELS if any(map(coo.is_compressed, _tensors(args, kwargs))) else coo.KERNELS
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
