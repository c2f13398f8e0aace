"""`pl.kernel` on one core, interpreted: the primitive `mpmd_map`, once it takes arrays in place of references.

JAX's own interpreter loses what such a kernel writes to a reference of its caller. In the discharged form this is an
argument and a result in the same memory, and the kernel writes to the argument.
"""

from __future__ import annotations

from typing import Any

from jax import tree_util
from jax._src.interpreters import mlir
from jax._src.pallas import core as pallas_core

from torchtpu.kernels.interpreter import run_kernel


def rules() -> Any:
    """JAX's primitive, with the rule by which it is lowered where kernels are interpreted."""
    try:
        from jax._src.pallas.mpmd import mpmd_map_p
    except ImportError:  # of a JAX without it
        return ()
    return ((mpmd_map_p, _lower),)


def _lower(context: Any, *operands: Any, **parameters: Any) -> Any:
    if len(parameters["jaxprs"]) != 1:
        raise NotImplementedError("a kernel with several functions is only compiled for a TPU")

    def compute(*arrays: Any) -> list[Any]:
        return _run(list(arrays), **parameters)

    return mlir.lower_fun(compute, multiple_results=True)(context, *operands)


def _run(
    arguments: list[Any], *, jaxprs: Any, meshes: Any, out_avals: Any, input_output_aliases: Any, **others: Any
) -> list[Any]:
    (jaxpr,), (mesh,) = jaxprs, meshes
    given, count = len(arguments), len(arguments) + len(out_avals)
    types = [each.aval for each in jaxpr.invars]
    arrays = [each.inner_aval for each in types[:count]]
    block = pallas_core.BlockSpec(memory_space=mesh.default_memory_space)
    spec = pallas_core.GridSpec(
        grid=tuple(mesh.shape.items()),
        in_specs=(block,) * given,
        out_specs=(block,) * len(out_avals),
        scratch_shapes=tuple(pallas_core.MemoryRef(each.inner_aval, each.memory_space) for each in types[count:]),
    )
    names = [f"argument {i}" for i in range(count)]
    trees = [tree_util.tree_structure(part) for part in (tuple(arguments), tuple(out_avals))]
    _, mapping = pallas_core.get_grid_mapping(
        spec, arrays[:given], trees[0], names[:given], arrays[given:], trees[1], names[given:], debug=False
    )
    aliases = tuple(input_output_aliases.items())
    return run_kernel(arguments, jaxpr=jaxpr, grid_mapping=mapping, input_output_aliases=aliases)
