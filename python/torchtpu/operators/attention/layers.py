"""Attention operators of the CPU and of evaluation mode: nn.MultiheadAttention, nn.TransformerEncoderLayer."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import gelu, layer_norm, linear, relu

from torchtpu.operators.registry import register

aten = torch.ops.aten


def _attention_scores(
    query: Tensor, key: Tensor, is_causal: bool, attn_mask: Tensor | None, scale: float | None
) -> Tensor:
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        rows, columns = (torch.arange(size, device=query.device) for size in scores.shape[-2:])
        scores = torch.where(columns <= rows[:, None], scores, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask.to(scores.dtype)
    return scores


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(each.float() if each.dtype in (torch.float16, torch.bfloat16) else each for each in tensors)


@register("aten::_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    wide_query, wide_key, wide_value = _wide(query, key, value)
    scores = _attention_scores(wide_query, wide_key, is_causal, attn_mask, scale)
    logsumexp = scores.logsumexp(-1)
    result = aten._safe_softmax.default(scores, -1) @ wide_value
    return result.to(query.dtype), logsumexp


@register("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_attention_backward(
    grad_out: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    if grad_out is None:
        # There is no gradient, which autograd must be told.
        return None, None, None
    wide_grad, wide_query, wide_key, wide_value, wide_out = _wide(grad_out, query, key, value, out)
    scores = _attention_scores(wide_query, wide_key, is_causal, attn_mask, scale)
    weights = torch.where(torch.isinf(logsumexp)[..., None], 0.0, (scores - logsumexp[..., None]).exp())
    grad_weights = wide_grad @ wide_value.mT - (wide_grad * wide_out).sum(-1, keepdim=True)
    grad_scores = weights * grad_weights * (query.shape[-1] ** -0.5 if scale is None else scale)
    grads = grad_scores @ wide_key, grad_scores.mT @ wide_query, weights.mT @ wide_grad
    return tuple(grad.to(query.dtype) for grad in grads)


@register("aten::_transform_bias_rescale_qkv")
def _queries_keys_values(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """From [batches, tokens, 3 * width] to three tensors [batches, heads, tokens, width of a head]; the queries
    are scaled."""
    width = qkv.shape[-1] // (3 * num_heads)
    parts = (qkv + qkv_bias).unflatten(-1, (3, num_heads, width)).permute(2, 0, 3, 1, 4)
    query, key, value = parts.contiguous().unbind()
    return query / math.sqrt(width), key.clone(), value.clone()


@register("aten::_native_multi_head_attention")
def _multi_head_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    mask: Tensor | None = None,
    need_weights: bool = True,
    average_attn_weights: bool = True,
    mask_type: int | None = None,
) -> tuple[Tensor, Tensor | None]:
    if query is key and key is value:
        qkv = linear(query, qkv_weight)
    else:
        pairs = zip((query, key, value), qkv_weight.chunk(3), strict=True)
        qkv = torch.cat([linear(each, weight) for each, weight in pairs], -1)
    if qkv.numel() == 0:
        return torch.empty_like(query), None
    queries, keys, values = _queries_keys_values(qkv, qkv_bias, num_head)
    scores = queries @ keys.mT
    if mask is not None:
        # A mask of all pairs of tokens, or (type 1) of the tokens of each batch.
        hidden = mask[:, None, None] if mask_type == 1 else mask
        scores = scores.masked_fill(hidden.to(torch.bool), -math.inf)
    attention = scores.softmax(-1)
    result = linear((attention @ values).transpose(1, 2).flatten(2), proj_weight, proj_bias)
    if not need_weights:
        return result, None
    return result, attention.sum(1) / num_head if average_attn_weights else attention


@register("aten::_transformer_encoder_layer_fwd")
def _transformer_encoder_layer(
    src: Tensor,
    embed_dim: int,
    num_heads: int,
    qkv_weight: Tensor,
    qkv_bias: Tensor,
    proj_weight: Tensor,
    proj_bias: Tensor,
    use_gelu: bool,
    norm_first: bool,
    eps: float,
    norm_weight_1: Tensor,
    norm_bias_1: Tensor,
    norm_weight_2: Tensor,
    norm_bias_2: Tensor,
    ffn_weight_1: Tensor,
    ffn_bias_1: Tensor,
    ffn_weight_2: Tensor,
    ffn_bias_2: Tensor,
    mask: Tensor | None = None,
    mask_type: int | None = None,
) -> Tensor:
    def attend(x: Tensor) -> Tensor:
        projections = (qkv_weight, qkv_bias, proj_weight, proj_bias)
        return _multi_head_attention(x, x, x, embed_dim, num_heads, *projections, mask, False, True, mask_type)[0]

    def feed_forward(x: Tensor) -> Tensor:
        hidden = linear(x, ffn_weight_1, ffn_bias_1)
        return linear(gelu(hidden) if use_gelu else relu(hidden), ffn_weight_2, ffn_bias_2)

    def first_norm(x: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), norm_weight_1, norm_bias_1, eps)

    def second_norm(x: Tensor) -> Tensor:
        return layer_norm(x, (embed_dim,), norm_weight_2, norm_bias_2, eps)

    if src.numel() == 0:
        return src.clone()
    if norm_first:
        x = src + attend(first_norm(src))
        return x + feed_forward(second_norm(x))
    x = first_norm(src + attend(src))
    return second_norm(x + feed_forward(x))
