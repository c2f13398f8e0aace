"""Whole training steps as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def compile_step(function: Callable[P, R], **options: Any) -> Callable[P, R]:
    """Compiles a whole training step into one program: forward, loss, `loss.backward()` and the optimizer's step.

    Parameters, gradients and the optimizer's state are updated in place, in their donated memory.

        @torch.tpu.compile_step
        def step(x, y):
            optimizer.zero_grad()
            loss = criterion(model(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

    It is `torch.compile(function, fullgraph=True)` with Dynamo's tracing of `backward()` switched on; `options` are
    those of `torch.compile`.
    """
    compiled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        import torch
        import torch._dynamo.config as dynamo

        if not compiled:
            compiled.append(torch.compile(function, **{"fullgraph": True, "backend": "tpu", **options}))
        with dynamo.patch(trace_autograd_ops=True):
            return compiled[0](*args, **kwargs)

    return step
