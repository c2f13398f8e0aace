"""Attention as the CPU names it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torchtpu.decompose.extra.registry import register

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
        # No gradient came, and autograd wants to hear so.
        return None, None, None
    wide_grad, wide_query, wide_key, wide_value, wide_out = _wide(grad_out, query, key, value, out)
    scores = _attention_scores(wide_query, wide_key, is_causal, attn_mask, scale)
    weights = torch.where(torch.isinf(logsumexp)[..., None], 0.0, (scores - logsumexp[..., None]).exp())
    grad_weights = wide_grad @ wide_value.mT - (wide_grad * wide_out).sum(-1, keepdim=True)
    grad_scores = weights * grad_weights * (query.shape[-1] ** -0.5 if scale is None else scale)
    grads = grad_scores @ wide_key, grad_scores.mT @ wide_query, weights.mT @ wide_grad
    return tuple(grad.to(query.dtype) for grad in grads)
