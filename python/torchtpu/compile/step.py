"""Whole training steps as one program."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

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
        import torch._dynamo.config as dynamo

        if not compiled:
            _trace_optimizers()
            compiled.append(torch.compile(function, **{"fullgraph": True, "backend": "tpu", **options}))
        with dynamo.patch(trace_autograd_ops=True):
            return compiled[0](*args, **kwargs)

    return step


@functools.cache
def _trace_optimizers() -> None:
    """Has Dynamo trace `zero_grad` and `step` of PyTorch's optimizers, in which PyTorch itself breaks graphs."""
    def zero_grad(self: torch.optim.Optimizer, set_to_none: bool = True) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if set_to_none:
                    parameter.grad = None
                else:
                    parameter.grad.zero_()

    torch.optim.SGD([torch.zeros(())]).zero_grad()  # the first call makes the function that hides it
    hidden = torch.optim.Optimizer.zero_grad
    for each in (hidden, getattr(hidden.__wrapped__, "__dynamo_disable", None)):
        if each is not None:
            torch.compiler.substitute_in_graph(each, skip_signature_check=True)(zero_grad)
    for optimizer in vars(torch.optim).values():
        breaking = vars(optimizer).get("step") if isinstance(optimizer, type) else None
        while breaking is not None and breaking.__code__.co_name != "_use_grad":
            breaking = getattr(breaking, "__wrapped__", None)  # a profiler's hook around it
        if breaking is not None:
            torch.compiler.substitute_in_graph(breaking, skip_signature_check=True)(_without_breaks(breaking.__wrapped__))


def _without_breaks(step: Callable[..., Any]) -> Callable[..., Any]:
    """An optimizer's `step`, with gradients on only where it is to be differentiated, as PyTorch calls it."""
    def call(self: torch.optim.Optimizer, *args: Any, **kwargs: Any) -> Any:
        if self.defaults["differentiable"]:
            with torch.enable_grad():
                return step(self, *args, **kwargs)
        with torch.no_grad():
            return step(self, *args, **kwargs)

    return call
