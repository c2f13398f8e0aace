"""Attention without the matrix of scores: JAX's splash attention.

Notation: b = batch, h = query head, g = key head, i = query position, j = key position, d = width of a head.

    query [b, h, i, d]   key, value [b, g, j, d]   h is a multiple of g: several query heads use one key head
    result[b, h, i] = sum over j of softmax over j of (query[b, h, i] · key[b, g, j] * scale) * value[b, g, j]

where i sees all j, or, if causal, those with j <= i; in a window those near it, and with segments those of its own.
"""

from __future__ import annotations

from typing import Any

# The lanes of a TPU's vector unit. Positions and widths are multiples of it.
LANES = 128
# The largest block of positions.
BLOCK = 512


def splash_attention(
    query: Any,
    key: Any,
    value: Any,
    causal: bool,
    scale: float,
    window: tuple[int, int] | None = None,
    segments: tuple[Any, Any] | None = None,
) -> Any:
    """The result, in the query's dtype. The arrays are as above; the numbers of positions are multiples of 128.

    `window`: how many keys before and after its own position a query sees. `segments`: the numbers of the segments of
    queries [b, i] and of keys [b, j].
    """
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask as masks

    heads, shape = _heads_of_a_mask(query, key), (query.shape[2], key.shape[2])
    one: Any = masks.CausalMask(shape) if causal else masks.FullMask(shape)
    if window is not None:
        before, after = window
        one = masks.LocalMask(shape, (before, 0 if causal else after), offset=0)
    return _splash(query, key, value, masks.MultiHeadMask([one] * heads), scale, segments)


def masked_attention(query: Any, key: Any, value: Any, mask: Any, scale: float) -> tuple[Any, Any]:
    """The result, in the query's dtype, and the logsumexp of the scores [b, h, i], in float32. Query i sees the keys j
    with mask[0 or b, 0 or h, i, j]. A query that sees none has a result of 0, and a logsumexp of minus infinity.

    Blocks of positions that see none of one another are left out. What is held is the mask, not the scores.
    """
    import jax.numpy as jnp

    result, (logsumexp,) = _splash(query, key, value, mask, scale, None, save_residuals=True)
    seeing = mask.any(-1)
    return jnp.where(seeing[..., None], result, 0), jnp.where(seeing, logsumexp, -jnp.inf)


def masked_attention_gradient(
    query: Any, key: Any, value: Any, mask: Any, gradient: Any, scale: float
) -> tuple[Any, Any, Any]:
    """The gradients of query, key and value, from that of the result of [`masked_attention`]."""
    import jax
    import jax.numpy as jnp

    seeing = mask.any(-1)[..., None]
    _, backward = jax.vjp(lambda q, k, v: _splash(q, k, v, mask, scale, None), query, key, value)
    of_query, of_key, of_value = backward(jnp.where(seeing, gradient, 0))
    return jnp.where(seeing, of_query, 0), of_key, of_value


def _splash(
    query: Any, key: Any, value: Any, mask: Any, scale: float, segments: Any, save_residuals: bool = False
) -> Any:
    """Splash attention. `mask` has JAX's form for all heads that share a key head, or is an array as above."""
    import jax
    import jax.numpy as jnp
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels

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

    def attend_by(mask: Any, is_mqa: bool) -> Any:
        return _kernel(mask, sizes, is_mqa, save_residuals)

    def attend(mask: Any, query: Any, key: Any, value: Any, *segments: Any) -> Any:
        """For one of the batch."""
        ids = kernels.SegmentIds(*segments) if segments else None
        if groups == heads:
            return attend_by(mask, is_mqa=False)(query, key, value, ids)
        grouped = query.reshape(groups, heads // groups, *query.shape[1:])
        if not isinstance(mask, jax.Array) or mask.shape[0] == 1:
            one = attend_by(mask, is_mqa=True)
            results = jax.vmap(lambda *given: one(*given, ids))(grouped, key, value)
        else:
            masks = mask.reshape(groups, heads // groups, *mask.shape[1:])
            results = jax.vmap(lambda mask, *given: attend_by(mask, is_mqa=True)(*given))(masks, grouped, key, value)
        return jax.tree.map(lambda each: each.reshape(heads, *each.shape[2:]), results)

    if not isinstance(mask, jax.Array):
        results = jax.vmap(lambda *given: attend(mask, *given))(query, key, value, *(segments or ()))
    elif mask.shape[0] == 1:
        results = jax.vmap(lambda *given: attend(mask[0], *given))(query, key, value)
    else:
        results = jax.vmap(attend)(mask, query, key, value)
    return jax.tree.map(lambda each: each[..., :width] if each.ndim == 4 else each, results)


def _kernel(mask: Any, sizes: Any, is_mqa: bool, save_residuals: bool) -> Any:
    """JAX's kernel for a mask, which is one of JAX's masks or an array [1 or heads, i, j]."""
    import jax
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_kernel as kernels
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info as infos

    if not isinstance(mask, jax.Array):
        make = kernels.make_splash_mqa if is_mqa else kernels.make_splash_mha
        return make(mask, block_sizes=sizes, head_shards=1, q_seq_shards=1, save_residuals=save_residuals)
    # `make_splash_mha` asks a part of such a mask for its value, which it has not while it is traced.
    block = sizes.block_q, sizes.block_kv
    of_rows, _ = infos.process_dynamic_mask(mask, block)
    of_columns, _ = infos.process_dynamic_mask_dkv(mask, block)
    return kernels.SplashAttentionKernel(
        *(of_rows, of_rows, of_columns),
        block_sizes=sizes,
        is_mqa=is_mqa,
        save_residuals=save_residuals,
        mask_value=kernels.DEFAULT_MASK_VALUE,
        attn_logits_soft_cap=None,
        residual_checkpoint_name=None,
        mask_function=None,
        interpret=False,
    )


def _heads_of_a_mask(query: Any, key: Any) -> int:
    """The number of heads in a mask of JAX's form: all, or those that share a key head."""
    heads, groups = query.shape[1], key.shape[1]
    return int(heads if groups == heads else heads // groups)


def _largest(size: int) -> int:
    """The largest block that divides a size."""
    return next(block for block in range(BLOCK, 0, -LANES) if size % block == 0)
