"""`jax.lax.ragged_dot` in a function, and its gradients: computed by megablox in programs for a TPU.

JAX's own form multiplies all rows by the matrix of each group, so its work grows with the number of groups.
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
from jax._src.interpreters import mlir
from jax._src.lax import lax

from torchtpu.kernels.library.grouped import LANES, by_matrices, of_columns
from torchtpu.kernels.routing import counted

# Contracting, ragged and group dimensions. The second and the third are the gradients of rows and of matrices.
BY_MATRICES = (((1,), (1,)), (0,), (0,))
BY_TRANSPOSED = (((1,), (2,)), (0,), (0,))
OF_COLUMNS = (((0,), (0,)), (0,), ())


def rules() -> Any:
    """JAX's primitive, with the rule by which it is lowered for a TPU."""
    return ((lax.ragged_dot_general_p, _lower),)


def _lower(context: Any, *operands: Any, **parameters: Any) -> Any:
    form = _form(parameters["ragged_dot_dimension_numbers"])
    if not counted("ragged_dot", why_not(form, *context.avals_in)):
        return lax._ragged_dot_general_lower(context, *operands, platform="tpu", **parameters)
    compute = functools.partial(ragged_product, form, dtype=context.avals_out[0].dtype)
    return mlir.lower_fun(compute, multiple_results=False)(context, *operands)


def why_not(form: Any, left: Any, right: Any, sizes: Any) -> str | None:
    """The reason why megablox cannot compute a product of arrays like these. None if it can."""
    if form not in (BY_MATRICES, BY_TRANSPOSED, OF_COLUMNS) or len(sizes.shape) != 1:
        return "its dimensions are not those of rows with a matrix for each group"
    if not left.dtype == right.dtype == jnp.bfloat16:
        return "its dtype is not bfloat16"
    widths = right.shape if form == OF_COLUMNS else right.shape[1:]
    if any(size == 0 or size % LANES for size in (*left.shape, *widths)):
        return "rows and columns are no multiples of 128"
    return None


def ragged_product(form: Any, left: Any, right: Any, sizes: Any, dtype: Any) -> Any:
    """The result of `jax.lax.ragged_dot_general` for one of the forms above."""
    sizes = sizes.astype(jnp.int32)
    if form == OF_COLUMNS:
        return of_columns(left, right, sizes, dtype)
    product = by_matrices(left, right, sizes, dtype, transposed=form == BY_TRANSPOSED)
    return jnp.where((jnp.arange(left.shape[0]) < sizes.sum())[:, None], product, 0)


def _form(numbers: Any) -> Any:
    contracting, batch = numbers.dot_dimension_numbers
    form = (tuple(map(tuple, contracting)), tuple(numbers.lhs_ragged_dimensions), tuple(numbers.rhs_group_dimensions))
    return None if any(map(tuple, batch)) else form
