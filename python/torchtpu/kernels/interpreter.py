"""Pallas kernels as plain StableHLO, for devices without a Pallas compiler.

A kernel becomes a loop over its grid. A step slices the blocks from their arrays, computes, and writes the changed
blocks back. Arrays that are only read are not part of the loop's state, because XLA would copy them at each step.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy
from jax import lax
from jax._src import core
from jax._src.pallas import core as pallas_core
from jax._src.pallas import hlo_interpreter, pallas_call, primitives

# Primitives that only call a function. They are inlined if the function has a kernel.
CALLS = {
    "jit": "jaxpr",
    "pjit": "jaxpr",
    "closed_call": "call_jaxpr",
    "core_call": "call_jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
    "custom_vjp_call_jaxpr": "fun_jaxpr",
    "remat2": "jaxpr",
    "checkpoint": "jaxpr",
}
# Control flow primitives, with the parameters that are their functions.
LOOPS = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}


def interpreted(function: Callable[..., Any]) -> Callable[..., list[Any]]:
    """A function that computes the same as `function`, with Pallas kernels interpreted."""

    def call(*arrays: Any) -> list[Any]:
        closed = jax.make_jaxpr(function)(*arrays)
        return _evaluate(closed.jaxpr, closed.consts, arrays)

    return call


def _evaluate(jaxpr: Any, constants: Sequence[Any], arguments: Sequence[Any]) -> list[Any]:
    values: dict[Any, Any] = dict(zip(jaxpr.constvars, constants, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for equation in jaxpr.eqns:
        results = _apply(equation, [read(each) for each in equation.invars])
        values.update(zip(equation.outvars, results, strict=True))
    return [read(each) for each in jaxpr.outvars]


def _apply(equation: Any, operands: list[Any]) -> list[Any]:
    primitive, parameters = equation.primitive, equation.params
    if primitive is pallas_call.pallas_call_p:
        return run_kernel(operands, **parameters)
    if _calls_kernel(equation):
        if primitive.name in CALLS:
            return _call(parameters[CALLS[primitive.name]], operands)
        if primitive.name in LOOPS:
            parameters = dict(parameters)
            for name in LOOPS[primitive.name]:
                given = parameters[name]
                parameters[name] = tuple(map(_replaced, given)) if isinstance(given, tuple) else _replaced(given)
    with equation.ctx.manager:
        results = primitive.bind(*operands, **primitive.get_bind_params(parameters))
    return list(results) if primitive.multiple_results else [results]


def _call(function: Any, operands: list[Any]) -> list[Any]:
    if isinstance(function, core.ClosedJaxpr):
        return _evaluate(function.jaxpr, function.consts, operands)
    return _evaluate(function, (), operands)


def _replaced(closed: Any) -> Any:
    """The function with its kernels interpreted."""
    avals = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in closed.in_avals]
    return jax.make_jaxpr(lambda *arrays: _evaluate(closed.jaxpr, closed.consts, arrays))(*avals)


def _calls_kernel(equation: Any) -> bool:
    return any(_has_kernel(each) for each in core.jaxprs_in_params(equation.params))


@functools.cache
def _has_kernel(jaxpr: Any) -> bool:
    return any(each.primitive is pallas_call.pallas_call_p or _calls_kernel(each) for each in jaxpr.eqns)


def kernels_of(jaxpr: Any) -> list[tuple[str, list[str]]]:
    """The name of each kernel in a function, with the dtype and shape of each block."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive is pallas_call.pallas_call_p:
            blocks = [
                f"{mapping.array_aval.dtype}{list(pallas_core._get_block_shape(mapping.block_shape))}"
                for mapping in equation.params["grid_mapping"].block_mappings
            ]
            found.append((equation.params["jaxpr"].debug_info.func_name, blocks))
        for each in core.jaxprs_in_params(equation.params):
            found += kernels_of(each)
    return found


def run_kernel(
    arguments: list[Any], *, jaxpr: Any, grid_mapping: Any, input_output_aliases: Any, **others: Any
) -> list[Any]:
    """The results of `pallas_call` for these arguments."""
    count = grid_mapping.num_dynamic_grid_bounds
    bounds, arguments = iter(arguments[:count]), arguments[count:]
    grid = [next(bounds) if isinstance(each, pallas_core.DynamicGridDim) else each for each in grid_mapping.grid]
    step, constants, scratch = hlo_interpreter.kernel_to_hlo_jaxpr(jaxpr, (), grid_mapping)
    scalars = arguments[grid_mapping.slice_index_ops]
    inputs = arguments[len(scalars) :]
    aliases = {output: given for given, output in input_output_aliases}
    mappings = grid_mapping.block_mappings
    outputs = [
        arguments[aliases[i]] if i in aliases else _unknown(each.array_aval)
        for i, each in enumerate(grid_mapping.block_mappings_output)
    ]
    blocks = [_Blocks(mapping, array) for mapping, array in zip(mappings, [*inputs, *outputs], strict=True)]
    places = range(len(scalars), len(scalars) + len(blocks))
    results = step.outvars
    written = [results[place] is not step.invars[place] or place >= places.start + len(inputs) for place in places]
    arrays = [each.padded for each in blocks]
    steps: Any = 1
    for size in grid:
        steps = steps * size

    def advance(state: Any) -> Any:
        index, place, changing, kept = state
        remaining = iter(changing)
        current = [next(remaining) if is_written else array for array, is_written in zip(arrays, written, strict=True)]
        axes = _axes(grid_mapping, place, grid)
        with pallas_core.grid_env(axes):
            starts = [each.mapping.compute_start_indices_interpret(place, *scalars) for each in blocks]
            taken = [each.take(array, start) for each, array, start in zip(blocks, current, starts, strict=True)]
            values = core.eval_jaxpr(step, constants, *scalars, *taken, *kept)
        put = [
            each.put(array, start, values[position])
            for each, array, start, position, is_written in zip(blocks, current, starts, places, written, strict=True)
            if is_written
        ]
        return index + 1, _next(place, grid), put, list(values[places.stop :])

    changing = [array for array, is_written in zip(arrays, written, strict=True) if is_written]
    state = (jnp.int32(0), tuple(jnp.int32(0) for _ in grid), changing, [_unknown(each) for each in scratch])
    _, _, changing, _ = lax.while_loop(lambda state: state[0] < steps, advance, state)
    finals = changing[len(changing) - len(outputs) :]
    # On a TPU, an aliased argument and its result share their memory. So a kernel may write to the argument instead.
    for output, given in aliases.items():
        argument, place = given - len(scalars), places.start + len(inputs) + output
        if argument >= 0 and written[argument] and results[place] is step.invars[place]:
            finals[output] = changing[sum(written[:argument])]
    return [each.whole(array) for each, array in zip(blocks[len(inputs) :], finals, strict=True)]


class _Blocks:
    """An array that is read and written by blocks. It is padded to a whole number of blocks."""

    def __init__(self, mapping: Any, array: Any) -> None:
        self.mapping = mapping
        self._shape = tuple(pallas_core._get_block_shape(mapping.block_shape))
        self._squeezed = tuple(
            i for i, each in enumerate(mapping.block_shape) if isinstance(each, pallas_core.Squeezed)
        )
        self._before = [_padding(each)[0] for each in mapping.block_shape]
        after = [_padding(each)[1] for each in mapping.block_shape]
        sizes = [low + size + high for low, size, high in zip(self._before, array.shape, after, strict=True)]
        after = [
            high + -size % block for high, size, block in zip(after, sizes, self._shape, strict=True)
        ]  # fills the last block
        self.padded = array
        if any(self._before) or any(after):
            edges = [(low, high, 0) for low, high in zip(self._before, after, strict=True)]
            self.padded = lax.pad(array, primitives.uninitialized_value(shape=(), dtype=array.dtype), edges)

    def take(self, array: Any, start: Any) -> Any:
        block = array
        if array.shape != self._shape:
            block = lax.dynamic_slice(array, _as_indices(start), self._shape)
        return lax.squeeze(block, self._squeezed)

    def put(self, array: Any, start: Any, block: Any) -> Any:
        block = lax.expand_dims(block, self._squeezed)
        return block if array.shape == self._shape else lax.dynamic_update_slice(array, block, _as_indices(start))

    def whole(self, array: Any) -> Any:
        sizes = self.mapping.array_aval.shape
        if array.shape == sizes:
            return array
        ends = [low + size for low, size in zip(self._before, sizes, strict=True)]
        return lax.slice(array, self._before, ends)


def _padding(dimension: Any) -> tuple[int, int]:
    return tuple(dimension.padding) if isinstance(dimension, pallas_core.Element) else (0, 0)  # type: ignore[return-value]


def _as_indices(start: Any) -> list[Any]:
    return [jnp.asarray(each, dtype=jnp.int32) for each in start]


def _unknown(aval: Any) -> Any:
    """The value of uninitialized memory: NaN, or the smallest number, so that a read of it shows in the results."""
    shape = getattr(aval, "shape", ())
    return primitives.uninitialized_value(shape, aval.dtype)


def _axes(grid_mapping: Any, place: Any, grid: Sequence[Any]) -> Any:
    if grid_mapping.local_grid_env is not None:
        return grid_mapping.local_grid_env(place, grid)
    return tuple(
        pallas_core.GridAxis(index, size)
        for axis, (index, size) in enumerate(zip(place, grid, strict=True))
        if axis not in grid_mapping.vmapped_dims
    )


def _next(place: Sequence[Any], grid: Sequence[Any]) -> tuple[Any, ...]:
    """The next index of the grid. The last axis varies fastest."""
    moved = []
    carry: Any = numpy.bool_(True)
    for size, index in reversed(list(zip(grid, place, strict=True))):
        index = jnp.where(carry, index + 1, index)
        carry = index == size
        moved.append(jnp.where(carry, 0, index))
    return tuple(reversed(moved))
