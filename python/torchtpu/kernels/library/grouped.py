"""Products of rows in groups with a matrix for each group: JAX's megablox.

    rows [t, k]   matrices [g, k, n]   ends [g], int32: of each group, the row behind its last one
    result[t] = rows[t] @ matrices[the group of row t]

Rows behind the last group are undefined.
"""

from __future__ import annotations

from typing import Any


def grouped_product(rows: Any, matrices: Any, ends: Any) -> Any:
    """The result, of the rows' dtype. All sizes but the number of groups are multiples of 128."""
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.megablox import gmm

    sizes = jnp.diff(ends.astype(jnp.int32), prepend=0)
    return gmm(rows, matrices, sizes, preferred_element_type=rows.dtype)
