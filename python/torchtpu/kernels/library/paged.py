"""Attention over a cache of pages: JAX's ragged paged attention.

`torchtpu.operators.attention.paged` has the meaning and the shapes of the arguments, which are the kernel's own.
"""

from __future__ import annotations

from typing import Any

# The keys that a step of the kernel reads, at least a page, and the tokens that it computes. JAX's own table of sizes
# asks the chip, which need not be there.
KEYS_PER_STEP = 512
TOKENS_PER_STEP = 32


def paged_attention(
    query: Any,
    pages: Any,
    lengths: Any,
    tables: Any,
    starts: Any,
    count: Any,
    scale: float,
    window: int | None,
    soft_cap: float | None,
) -> Any:
    """The result, of the query's dtype and shape."""
    from jax.experimental.pallas.ops.tpu.ragged_paged_attention import ragged_paged_attention

    return ragged_paged_attention(
        *(query, pages, lengths, tables, starts, count),
        sm_scale=scale,
        sliding_window=window,
        soft_cap=soft_cap,
        num_kv_pages_per_block=min(max(KEYS_PER_STEP // pages.shape[1], 1), tables.shape[1]),
        num_queries_per_block=min(TOKENS_PER_STEP, query.shape[0]),
    )
