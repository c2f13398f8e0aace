"""Whole training steps as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from torchtpu import _C

P = ParamSpec("P")
R = TypeVar("R")


def compile_step(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Compiles a whole training step into one program: forward, loss, backward and the optimizer's step.

    Parameters and the optimizer's state are updated in place, in their donated memory.

        @torch.tpu.compile_step
        def step(x, y):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

    The function is compiled as `torch.compile` does it; `options` are those of `torch.compile`. Where that breaks the
    graph (PyTorch does so around `backward()` and in optimizers), the parts are joined again: their programs become
    one, which runs when the function returns. What reads a result in between, such as `loss.item()`, ends it there.
    """
    compiled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        if not compiled:
            import torch

            compiled.append(torch.compile(function, **{"backend": "tpu", **options}))
        _C.begin_join()
        try:
            return compiled[0](*args, **kwargs)
        finally:
            _C.end_join()

    return step
