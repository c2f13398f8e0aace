"""Whole training steps as one program."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any, ParamSpec, TypeVar

from torchtpu import _C

# Among the objects of a thread, as csrc/graph.cpp looks for it.
SCOPE = "torchtpu.scope"

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

    Each call records what the function does and runs it when the function returns, as a program that is compiled when
    the function does something new. So nothing is traced beforehand and nothing can be out of date: Python code runs
    each time, and whatever works in eager mode works here. What reads a result in between, such as `loss.item()`, ends
    the program there. Compiled functions that are called become part of it; where sizes change, compile the model,
    `torch.compile(model, dynamic=True)`. What other threads call meanwhile runs apart from it.

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
    """A scope in which calls join: of this thread and of those on which autograd works for it, not of others."""
    import torch

    # Autograd gives its threads what the thread that calls it has here.
    outer = torch._C._get_obj_in_tls(SCOPE) if torch._C._is_key_in_tls(SCOPE) else None
    scope = outer or object()
    torch._C._stash_obj_in_tls(SCOPE, scope)
    _C.begin_join(id(scope))
    try:
        yield
    finally:
        torch._C._stash_obj_in_tls(SCOPE, outer)
        _C.end_join(id(scope))
