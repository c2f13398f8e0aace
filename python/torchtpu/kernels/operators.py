"""Kernels as PyTorch operators: the form of their results, their gradients, and their batching.

    torchtpu::kernel(Tensor[] tensors, str call) -> Tensor[]

is the operator of functions without a schema, and of all derived calls. Each operator of `jax_op` has its own schema.
No kernel is registered for the device: a call becomes a node of the graph, as with any operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import OpOverload

from torchtpu import _C
from torchtpu.kernels.calls import Call, Spec, call_named
from torchtpu.kernels.registry import Parse, parsers

_libraries: list[torch.library.Library] = []


def define(library: torch.library.Library, name: str, schema: str, parser: Parse) -> None:
    """Defines an operator for kernels in a library. `name` has no namespace."""
    full_name = f"{library.ns}::{name}"
    library.define(f"{name}{schema}", tags=(torch.Tag.pt2_compliant_tag,))
    parsers[full_name] = parser
    operator = getattr(getattr(torch.ops, library.ns), name).default
    count = len(operator._schema.arguments)
    shaped = _shaped(operator)

    def values_of(args: Sequence[Any], kwargs: Any) -> list[Any]:
        if not kwargs and len(args) == count:
            return list(args)
        from torchtpu.graphs.tracing import arguments_of

        return [value for _, value in arguments_of(operator, args, kwargs)]

    def fake(*args: Any, **kwargs: Any) -> Any:
        tensors, call = parser(values_of(args, kwargs))
        return shaped(results_like(call, tensors))

    def batched(info: Any, dims: Any, *args: Any, **kwargs: Any) -> Any:
        values = values_of(args, kwargs)
        tensors, call = parser(values)
        places = tuple(each.dim for each in parser(_dims(values, dims))[0])
        batch = call.derive("batched", places)
        results = torch.ops.torchtpu.kernel.default(tensors, batch.name)
        return shaped(results), shaped([0] * len(results))

    def differentiable(_: OpOverload, args: Sequence[Any], kwargs: Any) -> Any:
        """A call with a tensor that requires a gradient."""
        tensors, call = parser(values_of(args, kwargs))
        return shaped(_differentiable(call, tensors))

    torch.library.register_fake(full_name, fake, lib=library)
    torch.library.register_vmap(full_name, batched, lib=library)
    _C.set_gradient(full_name, differentiable)


def _dims(values: Sequence[Any], dims: Sequence[Any]) -> list[Any]:
    """The arguments, with each tensor replaced by its batch dimension or None."""
    mixed: list[Any] = []
    for value, dim in zip(values, [*dims, *[None] * (len(values) - len(dims))], strict=True):
        if isinstance(value, torch.Tensor):
            mixed.append(_Dim(dim))
        elif isinstance(value, list | tuple) and any(isinstance(each, torch.Tensor) for each in value):
            each_dim = dim if isinstance(dim, list | tuple) else [dim] * len(value)
            mixed.append([_Dim(each) for each in each_dim])
        else:
            mixed.append(value)
    return mixed


class _Dim:
    """Replaces a tensor; has its batch dimension."""

    def __init__(self, dim: int | None) -> None:
        self.dim = dim


def _shaped(operator: OpOverload) -> Callable[[Sequence[Any]], Any]:
    """From the flat list of a call's results to what the operator returns."""
    returns = operator._schema.returns
    count = len(returns)
    if not returns:
        return lambda results: None
    if str(returns[0].type) == "List[Tensor]":
        return list

    def shaped(results: Sequence[Any]) -> Any:
        if len(results) != count:
            raise TypeError(f"{operator._schema.name} returned {len(results)} arrays; its annotation says {count}")
        return results[0] if count == 1 else tuple(results)

    return shaped


def register() -> None:
    """Defines `torchtpu::kernel`."""
    library = torch.library.Library("torchtpu", "FRAGMENT")
    _libraries.append(library)
    define(library, "kernel", "(Tensor[] tensors, str call) -> Tensor[]", _parse_generic)


def _parse_generic(values: Sequence[Any]) -> tuple[list[Any], Call]:
    tensors, name = values
    return list(tensors), call_named(name)


# ---- results -----------------------------------------------------------------------------------------------------


def results_like(call: Call, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Tensors without data, with the dtypes and shapes of the results."""
    if not tensors:
        raise TypeError(f"{call.kernel.name} takes no tensor: on which device it runs would be unknown")
    device = tensors[0].device
    for tensor in tensors:
        if tensor.layout is not torch.strided:
            raise TypeError(f"{call.kernel.name} takes dense tensors, not one of layout {tensor.layout}")
    if any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.shape):
        from torchtpu.kernels.symbolic import result_shapes

        shapes = result_shapes(call, tensors)
        if shapes is not None:
            return [torch.empty(shape, dtype=dtype, device=device) for dtype, shape in shapes]
    from torchtpu.kernels.store import text_of

    text = text_of(call, specs_of(tensors))
    return [torch.empty(spec.shape, dtype=spec.dtype, device=device) for spec in text.results]


def specs_of(tensors: Sequence[torch.Tensor]) -> tuple[Spec, ...]:
    """The dtypes and shapes of tensors. A symbolic size becomes its current value."""
    return tuple(Spec(tensor.dtype, tuple(int(size) for size in tensor.shape)) for tensor in tensors)


# ---- gradients ---------------------------------------------------------------------------------------------------


class _Recomputing(torch.autograd.Function):
    """A call with a gradient that is computed from its tensors only."""

    @staticmethod
    def forward(ctx: Any, name: str, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        with torch._C._AutoDispatchBelowAutograd():
            results = torch.ops.torchtpu.kernel.default(list(tensors), name)
        ctx.name = name
        ctx.save_for_backward(*tensors)
        _describe(ctx, tensors, results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        return _backward(ctx, gradients, "gradient")


class _Saving(torch.autograd.Function):
    """A call with a gradient that is computed from the residuals of a `jax.custom_vjp` rule."""

    @staticmethod
    def forward(ctx: Any, name: str, plan: Any, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        sources, more = plan
        ctx.name, ctx.specs = name, specs_of(tensors)
        with torch._C._AutoDispatchBelowAutograd():
            every = torch.ops.torchtpu.kernel.default(list(tensors), call_named(name).derive("saving", ctx.specs).name)
        results = every[: len(every) - more]
        kept = {"input": tensors, "result": results, "more": every[len(results) :]}
        ctx.save_for_backward(*(kept[kind][place] for kind, place in sources))
        _describe(ctx, tensors, results)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        with torch.no_grad():
            results = _backward(ctx, gradients, "gradient saved", ctx.specs)
        if torch.is_grad_enabled():  # the rule has no gradient of its own
            taken = [each for each in results if each is not None]
            refusing = iter(_Refusing.apply(ctx.name, len(taken), *taken, *ctx.saved_tensors))
            results = tuple(None if each is None else next(refusing) for each in results)
        return None, *results


class _Refusing(torch.autograd.Function):
    """Raises when a second gradient is required that does not exist."""

    @staticmethod
    def forward(ctx: Any, name: str, count: int, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ctx.name = name
        return tuple(each.view_as(each) for each in tensors[:count])

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise RuntimeError(
            f"{call_named(ctx.name).kernel.name} has no second gradient: the rule of jax.custom_vjp that has its "
            f"gradient is not differentiated itself"
        )


def _describe(ctx: Any, tensors: Sequence[torch.Tensor], results: Sequence[torch.Tensor]) -> None:
    ctx.count = len(tensors)
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*(each for each in results if not _is_inexact(each)))


def _backward(ctx: Any, gradients: Sequence[torch.Tensor | None], kind: str, *rest: Any) -> tuple[Any, ...]:
    needs = tuple(ctx.needs_input_grad[-ctx.count :])
    given = tuple(each is not None for each in gradients)
    change = call_named(ctx.name).derive(kind, needs, given, *rest)
    inputs = [*ctx.saved_tensors, *(each for each in gradients if each is not None)]
    remaining = iter(torch.ops.torchtpu.kernel.default(inputs, change.name))
    return None, *(next(remaining) if needed else None for needed in needs)


def _differentiable(call: Call, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    plan = _plan(call, tensors)
    if plan is None:
        return list(_Recomputing.apply(call.name, *tensors))
    return list(_Saving.apply(call.name, plan, *tensors))


def _is_inexact(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def _plan(call: Call, tensors: Sequence[torch.Tensor]) -> Any:
    if any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.shape):
        return None
    from torchtpu.kernels.saved import plan_for

    return plan_for(call, specs_of(tensors))
