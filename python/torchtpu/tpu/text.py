"""`torch.tpu.stablehlo`: the program of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal


def stablehlo(
    function: Callable[..., Any], *args: Any, target: Literal["cpu", "tpu"] | None = None, **kwargs: Any
) -> str:
    """The StableHLO text of the program that `torch.compile(function)(*args, **kwargs)` runs; it is not run::

        x = torch.ones(8, 8, device="tpu")
        print(torch.tpu.stablehlo(lambda x: (x @ x).relu(), x))
        print(torch.tpu.stablehlo(model, x, target="tpu"))

    `function` is a function or a module. At least one tensor that it takes or holds must be on "tpu". The call is
    traced: no argument and no parameter changes, and nothing runs on the device.

    `target` is the compiler that the text is for, "cpu" or "tpu"; by default, the device's. The texts differ if one
    of the compilers does not support an operation, or makes a slow program of it.

    `@main` takes the tensors that the call takes, including parameters and buffers, dense and row-major, and then the
    state of the generator, if random numbers are drawn. It returns the new values of tensors that are written, then
    the results, with the values saved for gradients if there are any, and then a number for each check of the data,
    such as an index check.

    PyTorch's functional collectives, and with them DTensor, are inside the program. It is then one for all ranks: it
    has as many replicas, and its text is the same on each of them.

    ValueError: no tensor is on "tpu", the call computes nothing, or there is no such target. RuntimeError: the call
    cannot be traced, or is not one program, for example because a branch depends on data; the message says where.
    NotImplementedError names what the target does not support.
    """
    if not callable(function):
        raise TypeError(f"stablehlo() takes a function or a module, not {type(function).__name__}")
    if target not in (None, "cpu", "tpu"):
        raise ValueError(f"target must be 'cpu' or 'tpu', not {target!r}")
    from torchtpu.compile.text import listed

    return listed(function, args, kwargs, target)
