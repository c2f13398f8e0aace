"""Attention without the matrix of scores: JAX's splash attention.

Notation: b = batch, h = query head, g = key head, i = query position, j = key position, d = width of a head.

    query [b, h, i, d]   key, value [b, g, j, d]   h is a multiple of g: several query heads use one key head
    result[b, h, i] = sum over j of softmax over j of (query[b, h, i] · key[b, g, j] * scale) * value[b, g, j]

where i sees all j, or, if causal, those with j <= i.
"""

from __future__ import annotations

from typing import Any

# The lanes of a TPU's vector unit. Positions and widths are multiples of it.
LANES = 128
# The largest block of positions.
BLOCK = 512


def splash_attention(query: Any, key: Any, value: Any, causal: bool, scale: float) -> Any:
    """The result, in the query's dtype. The arrays are as above; the numbers of positions are multiples of 128."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    (_, heads, rows, width), (_, groups, columns, _) = query.shape, key.shape
    # Zeros beyond a head's width change neither scores nor results.
    query, key, value = (
        jnp.pad(each, [(0, 0), (0, 0), (0, 0), (0, -each.shape[-1] % LANES)]) for each in (query * scale, key, value)
    )
    block_q, block_kv = (_largest(size) for size in (rows, columns))
    sizes = kernels.BlockSizes(
        block_q=block_q,
        block_kv=block_kv,
        block_kv_compute=block_kv,
        block_q_dkv=block_q,
        block_kv_dkv=block_kv,
        block_kv_dkv_compute=block_kv,
        block_q_dq=block_q,
        block_kv_dq=block_kv,
    )
    shape = (rows, columns)
    one = masks.CausalMask(shape) if causal else masks.FullMask(shape)
    mask = masks.MultiHeadMask([one] * (heads if groups == heads else heads // groups))
    if groups == heads:
        attend = jax.vmap(kernels.make_splash_mha(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1))
        result = attend(query, key, value)
    else:
        attend = kernels.make_splash_mqa(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1)
        grouped = query.reshape(query.shape[0], groups, heads // groups, rows, query.shape[-1])
        result = jax.vmap(jax.vmap(attend))(grouped, key, value).reshape(query.shape[:-1] + (value.shape[-1],))
    return result[..., :width]


def _largest(size: int) -> int:
    """The largest block that divides a size."""
    return next(block for block in range(BLOCK, 0, -LANES) if size % block == 0)
