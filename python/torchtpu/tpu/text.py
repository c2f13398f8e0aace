"""`torch.tpu.stablehlo`: what a call becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal


def stablehlo(
    function: Callable[..., Any], *args: Any, target: Literal["cpu", "tpu"] | None = None, **kwargs: Any
) -> str:
    """The StableHLO text of the program that `torch.compile(function)(*args, **kwargs)` runs, which is not run::

        x = torch.ones(8, 8, device="tpu")
        print(torch.tpu.stablehlo(lambda x: (x @ x).relu(), x))
        print(torch.tpu.stablehlo(model, x, target="tpu"))

    `function` is a function or a module; some tensor that it takes or holds is on "tpu". It is traced: no argument and
    no parameter changes, and nothing runs on the device.

    `target` says whose compiler the text is for, "cpu" or "tpu"; without it, that of the device. They differ where one
    of them does not take an operation, or makes a slow program of it.

    `@main` takes the tensors that the call takes, parameters and buffers among them, dense and in row-major order, and
    behind them, where random numbers are drawn, the state of the generator. It returns the new values of tensors that
    are written, then the results, with what gradients need if there are to be any, and then a number for each check of
    the data, such as that of an index.

    ValueError: no tensor is on "tpu", the call computes nothing, or there is no such target. RuntimeError: the call
    cannot be traced, or is not one program, as where a branch depends on the data; the message says where.
    NotImplementedError names what the target does not have.
    """
    if not callable(function):
        raise TypeError(f"stablehlo() takes a function or a module, not {type(function).__name__}")
    if target not in (None, "cpu", "tpu"):
        raise ValueError(f"target must be 'cpu' or 'tpu', not {target!r}")
    from torchtpu.compile.text import listed

    return listed(function, args, kwargs, target)
