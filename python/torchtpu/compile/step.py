"""Whole training steps as one program."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from torchtpu import _C

if TYPE_CHECKING:
    from torch.optim import Optimizer

# Among the objects of a thread, as csrc/graph.cpp looks for it.
SCOPE = "torchtpu.scope"

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
    What other threads call meanwhile runs apart from it.
    """
    compiled: list[Callable[P, R]] = []
    steps: dict[Optimizer, Callable[..., Any]] = {}

    @functools.wraps(function)
    def step(*args: P.args, **kwargs: P.kwargs) -> R:
        if not compiled:
            import torch

            compiled.append(torch.compile(function, **{"backend": "tpu", **options}))
            steps.update(_untraced_steps(function, args, kwargs))
        replaced = [(optimizer, vars(optimizer).get("step")) for optimizer in steps]
        for optimizer, untraced in steps.items():
            optimizer.step = untraced  # type: ignore[method-assign]
        try:
            with _scope():
                return compiled[0](*args, **kwargs)
        finally:
            for optimizer, own in replaced:
                if own is None:
                    del optimizer.step
                else:
                    optimizer.step = own  # type: ignore[method-assign]

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


def _untraced_steps(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[Optimizer, Callable[..., Any]]:
    """Steps of optimizers for Dynamo to leave alone: what they call is recorded into the same program anyway, without
    the seconds that tracing them takes and the guards of each of their tensors."""
    import torch

    return {
        value: torch.compiler.disable(value.step)
        for value in _reachable(function, args, kwargs)
        if isinstance(value, torch.optim.Optimizer)
    }


def _reachable(function: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Iterator[Any]:
    """What a function is given or refers to, and the attributes of that."""
    inner = inspect.unwrap(function)
    named = inspect.getclosurevars(inner) if inspect.isfunction(inner) or inspect.ismethod(inner) else None
    held = [*args, *kwargs.values(), getattr(inner, "__self__", None if named else inner)]
    if named is not None:
        held += [*named.nonlocals.values(), *named.globals.values()]
    for value in held:
        yield value
        if not inspect.ismodule(value) and not isinstance(value, type):
            yield from vars(value).values() if hasattr(value, "__dict__") else ()
