"""Products of rows in groups, with a matrix for each group: JAX's megablox.

    sizes [g], int32: how many rows each group has. t = rows, k and n = widths

    by matrices    rows [t, k], matrices [g, k, n]     result[t] = rows[t] @ matrices[the group of row t]
    of columns     left [t, k], right [t, n]           result[g] = sum of the outer products of the group's rows

Rows behind the last group belong to none: their products are undefined, and they are in no sum.
"""

from __future__ import annotations

from typing import Any

LANES = 128
# The largest tile of rows and widths.
TILE = 512


def grouped_product(rows: Any, matrices: Any, ends: Any) -> Any:
    """Rows by matrices, of the rows' dtype. `ends` [g]: of each group, the row behind its last one.

    All sizes but the number of groups are multiples of 128.
    """
    return by_matrices(rows, matrices, _sizes(ends), rows.dtype)


def grouped_columns(left: Any, right: Any, ends: Any) -> Any:
    """The sums [g, k, n] of outer products, in float32. `ends` and sizes as in [`grouped_product`]."""
    import jax.numpy as jnp

    return of_columns(left, right, _sizes(ends), jnp.float32)


def by_matrices(rows: Any, matrices: Any, sizes: Any, dtype: Any, transposed: bool = False) -> Any:
    """Rows by matrices, which are [g, n, k] if `transposed`."""
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    width = matrices.shape[1 if transposed else 2]
    tiles = (_tile(rows.shape[0]), _tile(rows.shape[1]), _tile(width))
    return gmm(rows, matrices, sizes, preferred_element_type=dtype, tiling=tiles, transpose_rhs=transposed)


def of_columns(left: Any, right: Any, sizes: Any, dtype: Any) -> Any:
    """The sums of the outer products of each group's rows."""
    from jax.experimental.pallas.ops.tpu.megablox.gmm import tgmm

    tiles = (_tile(left.shape[0]), _tile(left.shape[1]), _tile(right.shape[1]))
    return tgmm(left.T, right, sizes, preferred_element_type=dtype, tiling=tiles)


def _sizes(ends: Any) -> Any:
    import jax.numpy as jnp

    return jnp.diff(ends.astype(jnp.int32), prepend=0)


def _tile(size: int) -> int:
    """The largest tile that divides a size."""
    return next(tile for tile in range(TILE, 0, -LANES) if size % tile == 0)
