"""Training steps as one program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from torchtpu import _C
from torchtpu.tpu.scopes import scope_of_thread

P = ParamSpec("P")
R = TypeVar("R")


def compile_step(function: Callable[P, R], **options: Any) -> Callable[P, R]:
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

    With `options`, which are those of `torch.compile`, the function itself is compiled first.
    """
    if options:
        import torch

        function = torch.compile(function, **{"backend": "tpu", **options})

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        with _scope():
            return function(*args, **kwargs)

    return step


@contextlib.contextmanager
def _scope() -> Iterator[None]:
    """A scope whose calls join one program: calls of this thread, and of the autograd threads that work for it."""
    scope = scope_of_thread()
    _C.begin_join(scope)
    try:
        yield
    finally:
        _C.end_join(scope)
