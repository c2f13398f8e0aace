"""Training steps as one program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar, overload

from torchtpu import _C

P = ParamSpec("P")
R = TypeVar("R")


@overload
def compile_step(function: Callable[P, R], *, spmd: bool = False, **options: Any) -> Callable[P, R]: ...
@overload
def compile_step(*, spmd: bool = False, **options: Any) -> Callable[[Callable[P, R]], Callable[P, R]]: ...
def compile_step(function: Any = None, *, spmd: bool = False, **options: Any) -> Any:
    """Makes a whole training step one program: forward, loss, backward and the optimizer's step.

    Parameters and the optimizer's state are updated in place, in their donated memory.

        @torch.tpu.compile_step
        def step(x, y):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

    Each call records the operators of the function and runs them as one program when the function returns. The program
    is compiled when the function does something new. Nothing is traced beforehand: the Python code runs each time, and
    all code that works in eager mode works here. A read of a result inside the function, such as `loss.item()`, ends
    the program there. Calls of compiled functions become part of the program; for changing sizes, compile the model
    with `torch.compile(model, dynamic=True)`. Calls of other threads run apart from it.

    With `spmd=True` the collectives of the step are parts of the program, so that XLA can run them beside other work.
    This is so where the plugin's client has the devices of all ranks, as libtpu's has; elsewhere it changes nothing. A
    program has the collectives of one list of devices. Those of other groups are cut from it, and `torch.tpu.explain`
    says so.

    `spmd=True` is a promise that the program is the same on all ranks of these collectives, in each call:

    - All ranks run the same operators on the same shapes, and read or print results at the same places. Only the values
      differ.
    - Views have the same offsets on all ranks. `x[rank * 4 : rank * 4 + 4]` belongs before the step, with `.clone()`. A
      redistribution of a DTensor that takes a part by the rank makes a program for each rank.
    - All ranks keep the same results of operators after the function has returned, and other references to the same
      tensors that it updates in place: the program returns what is kept, and reuses the memory of what is not. What the
      function returns, each rank may then print, keep or drop.
    - No other thread reads a tensor of this device or waits for the device during the call.

    The ranks compare their programs before each launch, while earlier work runs. Where one breaks the promise, nothing
    is launched, and a read of a result raises an error on each rank that says what each would have launched. A rank
    that does not come is named after the timeout of the process group.

    With `options`, which are those of `torch.compile`, the function itself is compiled first.
    """
    if function is None:
        return functools.partial(compile_step, spmd=spmd, **options)
    if options:
        import torch

        function = torch.compile(function, **{"backend": "tpu", **options})

    @functools.wraps(function)
    def step(*args: Any, **kwargs: Any) -> Any:
        with joined(spmd):
            return function(*args, **kwargs)

    return step


@contextlib.contextmanager
def joined(spmd: bool) -> Iterator[None]:
    """A scope whose calls join one program: calls of this thread, and of the autograd threads that work for it."""
    scope = _C.scope_of_thread()
    _C.begin_join(scope, spmd)
    try:
        yield
    finally:
        _C.end_join(scope)
