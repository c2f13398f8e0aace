"""Graphs that a user gives to inductor by its name.

`torch.compile(backend="inductor")` does not ask Dynamo's registry of backends. It calls `compile_fx` of
`torch._inductor.compile_fx`, which writes Pallas kernels for tpu tensors, and they need JAX. PyTorch has no hook that
says who compiles a graph: `register_backend_for_device` takes a generator of code, which comes after inductor's own
decompositions and random numbers, so that results would differ from those of `backend="tpu"`.

So `compile_fx` is replaced by a function that looks where a graph's tensors are. No other function of PyTorch is
replaced. `docs/upstream` has the hook that would do instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from torchtpu.compile import backend
from torchtpu.compile.options import say_no_effect

# Inductor's option that says who writes kernels for tpu tensors; "pallas" is all that it takes.
KERNELS = "tpu_backend"


def take_tpu_graphs() -> None:
    """Has graphs with tpu tensors compiled here that inductor is asked to compile.

    AttributeError if PyTorch has no function `compile_fx` any more.
    """
    import torch._inductor.compile_fx as module

    module.compile_fx = _with_tpu(module.compile_fx)


def asks_for_pallas(options: Mapping[str, Any] | None) -> bool:
    """Whether the user wants inductor's own kernels for tpu tensors: by an option, or by a value in inductor's
    config. The default value does not count."""
    from torch._inductor import config

    return KERNELS in (options or {}) or not config._is_default(KERNELS)  # type: ignore[attr-defined]


def _with_tpu(inductors: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(inductors)
    def compile_fx(
        model: Any,
        example_inputs: Sequence[Any],
        *arguments: Any,
        config_patches: Mapping[str, Any] | None = None,
        compile_region_name: str | None = None,
        **others: Any,
    ) -> Any:
        if not arguments and not others and _is_ours(model, example_inputs, config_patches):
            say_no_effect(config_patches or {})
            return backend.compile_graph(model, example_inputs, ())
        if compile_region_name is not None:
            others["compile_region_name"] = compile_region_name
        return inductors(model, example_inputs, *arguments, config_patches=config_patches, **others)

    return compile_fx


def _is_ours(model: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None) -> bool:
    """Whether this is a graph of Dynamo's with tpu tensors. What is exported ahead of time is inductor's."""
    from torch._inductor.virtualized import V

    return (
        isinstance(model, GraphModule)
        and not V.aot_compilation
        and backend.has_tpu_tensors(model, inputs)
        and not asks_for_pallas(options)
    )
