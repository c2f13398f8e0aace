"""Functions that JAX derives from a kernel's function: gradients and batched calls.

    ("batched", dims)                          jax.vmap; `dims` has a dimension, or None, for each tensor
    ("saving", specs)                          a pair: the results, and what the gradient needs of the forward pass
    ("gradient", needs, given)                 from the tensors and the gradients of results; recomputes the results
    ("gradient saved", needs, given, specs)    from the values that "saving" saved, and the gradients of results

`needs` says for each tensor whether its gradient is required; `given`, for each result, whether its gradient is an
input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax._src import core, dtypes

from torchtpu.kernels.calls import Call, Spec
from torchtpu.kernels.tracing import array_like, flatten_results

NO_GRADIENT = (
    "{kernel} has no gradient: jax.vjp cannot differentiate the Pallas kernel that it calls ({reason}). Give it one: "
    "register_autograd(backward), reference=a plain JAX function of the same arguments, or jax.custom_vjp around the "
    "kernel"
)


def derived(call: Call, change: tuple[Any, ...]) -> Callable[..., Any]:
    """The function of a derived call."""
    kind, *rest = change
    if kind == "batched":
        return jax.vmap(call.function(), in_axes=tuple(rest[0]))
    if kind == "saving":
        return lambda *arrays: _save(call, arrays)[:2]
    if kind == "gradient":
        needs, given = rest
        return lambda *arrays: _gradient(call, needs, given, arrays)
    needs, given, specs = rest
    return lambda *arrays: _gradient_of_saved(call, needs, given, specs, arrays)


def plan(call: Call, specs: Sequence[Spec]) -> Any:
    """The values of the forward pass that the gradient needs. None if it needs the tensors only. Else ["input", i],
    ["result", i] or ["more", i] for each value that it needs, and the number of additional results.

    Functions with a rule (jax.custom_vjp) save what the rule saves. For other functions the backward pass recomputes
    the values that it needs.
    """
    if call.kernel.reference is not None:
        return None
    arrays = [array_like(spec) for spec in specs]
    try:
        closed = jax.make_jaxpr(lambda *given: _leaves(call.function()(*given)))(*arrays)
        if not _has_primitive(closed.jaxpr, "custom_vjp_call"):
            return None
        count = len(closed.out_avals)
        saving = jax.make_jaxpr(lambda *given: _save(call, given, whole=True)[:2])(*arrays)
    except Exception:
        return None  # `backward()` raises the reason
    results, saved = saving.jaxpr.outvars[:count], saving.jaxpr.outvars[count:]
    sources: list[list[Any]] = []
    more = 0
    for value in saved:
        if value in saving.jaxpr.invars:
            sources.append(["input", saving.jaxpr.invars.index(value)])
        elif not isinstance(value, core.Literal) and value in results:
            sources.append(["result", results.index(value)])
        else:
            sources.append(["more", more])
            more += 1
    return [sources, more]


def _differentiable(call: Call) -> Callable[..., Any]:
    """The function that is differentiated."""
    if call.kernel.reference is not None and call.of is None:
        return call.bound(call.kernel.reference)
    if call.kernel.reference is not None and call.change[0] == "batched":
        return jax.vmap(_differentiable(call.of), in_axes=tuple(call.change[1]))  # type: ignore[arg-type]
    return call.function()


def _is_inexact(array: Any) -> bool:
    return bool(dtypes.issubdtype(array.dtype, jnp.inexact))


def _vjp(call: Call, arrays: Sequence[Any]) -> tuple[Any, Any]:
    """The results in the function's nesting, and the function from the gradients of inexact results to the gradients of
    inexact tensors."""
    function = _differentiable(call)
    places = [i for i, array in enumerate(arrays) if _is_inexact(array)]

    def of_inexact(*values: Any) -> tuple[list[Any], Any]:
        given = list(arrays)
        for place, value in zip(places, values, strict=True):
            given[place] = value
        nested = function(*given)
        return [each for each in _leaves(nested) if _is_inexact(each)], nested

    try:
        _, backward, nested = jax.vjp(of_inexact, *(arrays[place] for place in places), has_aux=True)
    except Exception as error:
        closed = jax.make_jaxpr(function)(*arrays)  # raises the function's own errors
        if not _has_primitive(closed.jaxpr, "pallas_call"):
            raise
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise RuntimeError(NO_GRADIENT.format(kernel=call.kernel.name, reason=reason)) from error
    return nested, backward


def _leaves(nested: Any) -> list[Any]:
    leaves: list[Any] = []
    flatten_results(nested, leaves)
    return leaves


def _backward(
    backward: Any, results: Sequence[Any], inputs: Sequence[Any], needs: Any, given: Any, gradients: Any
) -> list[Any]:
    """The required gradients, of tensors like `inputs`."""
    remaining = iter(gradients)
    cotangents = []
    for result, is_given in zip(results, given, strict=True):
        gradient = next(remaining) if is_given else None
        if _is_inexact(result):
            zeros = jnp.zeros(result.shape, result.dtype)
            cotangents.append(zeros if gradient is None else gradient.astype(result.dtype))
    computed = iter(backward(cotangents))
    every = [next(computed) if _is_inexact(each) else None for each in inputs]
    return [gradient for gradient, is_needed in zip(every, needs, strict=True) if is_needed]


def _gradient(call: Call, needs: Any, given: Any, arrays: Sequence[Any]) -> list[Any]:
    inputs, gradients = arrays[: len(needs)], arrays[len(needs) :]
    results, backward = _vjp(call, inputs)
    return _backward(backward, _leaves(results), inputs, needs, given, gradients)


def _save(call: Call, arrays: Sequence[Any], whole: bool = False) -> tuple[Any, list[Any], Any]:
    """The results, the values that the forward pass saved, and their structure in the rule. Without `whole`, saved
    values that are tensors or results are left out."""
    results, backward = _vjp(call, arrays)
    leaves, tree = jax.tree.flatten(backward)
    if not whole:
        sources, _ = plan(call, [_spec(each) for each in arrays])
        leaves = [leaf for leaf, source in zip(leaves, sources, strict=True) if source[0] == "more"]
    return results, leaves, tree


def _spec(array: Any) -> Spec:
    from torchtpu.kernels.tracing import to_torch

    return Spec(to_torch(array.dtype), tuple(array.shape))


def _gradient_of_saved(call: Call, needs: Any, given: Any, specs: Any, arrays: Sequence[Any]) -> list[Any]:
    inputs = [array_like(spec) for spec in specs]
    kept: list[Any] = []

    def forward(*values: Any) -> list[Any]:
        results, _, tree = _save(call, values, whole=True)
        kept.append(tree)
        return _leaves(results)

    results = jax.eval_shape(forward, *inputs)
    (tree,) = kept
    backward = jax.tree.unflatten(tree, arrays[: tree.num_leaves])
    return _backward(backward, results, inputs, needs, given, arrays[tree.num_leaves :])


def _has_primitive(jaxpr: Any, name: str) -> bool:
    return any(
        equation.primitive.name.startswith(name)
        or any(_has_primitive(each, name) for each in core.jaxprs_in_params(equation.params))
        for equation in jaxpr.eqns
    )
