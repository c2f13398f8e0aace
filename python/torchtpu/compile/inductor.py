"""Compiles graphs with tpu tensors for which the user selects inductor by name.

`torch.compile(backend="inductor")` does not use Dynamo's registry of backends. It calls `compile_fx` of
`torch._inductor.compile_fx`, which generates Pallas kernels for tpu tensors; these need JAX. PyTorch has no hook
to select the compiler of a graph. `register_backend_for_device` takes a code generator, which runs after
inductor's own decompositions and random numbers, so results would differ from those of `backend="tpu"`.

So `compile_fx` is replaced by a function that checks the devices of a graph's tensors. `docs/upstream` describes a hook
that could be used instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch.fx import GraphModule

from torchtpu.compile import backend
from torchtpu.compile.options import warn_no_effect

# Inductor's option for kernels of tpu tensors. "pallas" is its only value.
KERNELS = "tpu_backend"

_NO_PACKAGE = (
    "AOTInductor packages code for CPUs and GPUs, which cannot run on 'tpu'. Use "
    "torchtpu.export.to_stablehlo(program).save(path) with the program of torch.export, and torchtpu.export.load(path)"
)


def compile_tpu_graphs() -> None:
    """Makes torchtpu compile graphs with tpu tensors that inductor is asked to compile.

    AttributeError if PyTorch no longer has a function `compile_fx`.
    """
    import torch._inductor.compile_fx as module

    module.compile_fx = _with_tpu(module.compile_fx)


def asks_for_pallas(options: Mapping[str, Any] | None) -> bool:
    """Whether the user asks for inductor's own kernels for tpu tensors: by an option, or by a value in inductor's
    config. The default value does not count."""
    from torch._inductor import config

    return KERNELS in (options or {}) or not config._is_default(KERNELS)  # type: ignore[attr-defined]


def _with_tpu(inductors: Callable[..., Any]) -> Callable[..., Any]:
    from torch._inductor.virtualized import V

    @functools.wraps(inductors)
    def compile_fx(
        model: Any,
        example_inputs: Sequence[Any],
        *arguments: Any,
        config_patches: Mapping[str, Any] | None = None,
        compile_region_name: str | None = None,
        **others: Any,
    ) -> Any:
        asks_us = V.aot_compilation or not (arguments or others)
        if asks_us and _is_ours(model, example_inputs, config_patches):
            if V.aot_compilation:
                # A package is a library that PyTorch calls without Python. It holds inductor's kernels, and has no
                # place for a program that a PJRT plugin compiles and runs. `torchtpu.export` has the file for that.
                raise NotImplementedError(_NO_PACKAGE)
            warn_no_effect(config_patches or {})
            return backend.compile_graph(model, example_inputs, ())
        if compile_region_name is not None:
            others["compile_region_name"] = compile_region_name
        return inductors(model, example_inputs, *arguments, config_patches=config_patches, **others)

    return compile_fx


def _is_ours(model: Any, inputs: Sequence[Any], options: Mapping[str, Any] | None) -> bool:
    """Whether this is a Dynamo graph with tpu tensors."""
    return isinstance(model, GraphModule) and backend.has_tpu_tensors(model, inputs) and not asks_for_pallas(options)
