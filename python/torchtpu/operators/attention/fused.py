"""The attention kernels that PyTorch only has for GPUs, for dense batches and for packed sequences.

Notation: b = batch, i = query position, j = key position, h = head, g = gradient. A head attends with

    scores[b, h, i, j]  = query[b, h, i] · key[b, h, j] * scale + bias[b, h, i, j], or -inf if i does not attend to j
    weights[b, h, i, j] = softmax over j of scores[b, h, i, j]
    output[b, h, i]     = sum over j of weights[b, h, i, j] * value[b, h, j]

Packed sequences are padded to the longest one first: `starts[b]` is the start of sequence b, and `starts[-1]` is the
end of the last one.
"""

from __future__ import annotations

import dataclasses
import math

import torch
from torch import Tensor

from torchtpu.operators.registry import register

# The constants that mix a seed and a position (SplitMix64), as signed numbers.
_GOLDEN = 0x9E3779B97F4A7C15 - 2**64
_MIXERS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


@dataclasses.dataclass(frozen=True)
class _Sequences:
    """The sequences of one side: [batch, position, head, width], or packed [token, head, width]."""

    starts: Tensor | None
    size: int
    """The length of the longest sequence."""

    def pad(self, x: Tensor) -> Tensor:
        """As [batch, head, position, width]."""
        if self.starts is not None:
            rows = self.starts[:-1, None] + torch.arange(self.size, device=x.device)
            x = x[rows.clamp(0, max(x.shape[0] - 1, 0))]
        return x.transpose(1, 2)

    def pack(self, padded: Tensor, tokens: int) -> Tensor:
        """The inverse of `pad`. Tokens that belong to no sequence are zero."""
        padded = padded.transpose(1, 2)
        if self.starts is None:
            return padded
        places = torch.arange(tokens, device=padded.device)
        batch = (torch.searchsorted(self.starts, places, right=True) - 1).clamp(0, padded.shape[0] - 1)
        position = (places - self.starts[batch]).clamp(0, max(self.size - 1, 0))
        is_real = (places >= self.starts[0]) & (places < self.starts[-1])
        return torch.where(is_real[:, None, None], padded[batch, position], 0)

    def lengths(self, like: Tensor) -> Tensor:
        """As [batch or 1, 1, 1, 1]."""
        if self.starts is None:
            return torch.full((1, 1, 1, 1), self.size, device=like.device)
        return self.starts.diff()[:, None, None, None]


@dataclasses.dataclass(frozen=True)
class _Visible:
    """The keys that a query attends to: from `left` positions before its own to `right` after it. None is no
    limit."""

    left: int | None
    right: int | None
    ends_meet: bool
    """Whether the last query is aligned with the last key; otherwise the first query is aligned with the first
    key."""


@dataclasses.dataclass
class _Attention:
    """One call's intermediate values, in float32 or wider."""

    query: Tensor
    key: Tensor
    value: Tensor
    weights: Tensor
    logsumexp: Tensor
    scale: float
    kept: Tensor | None
    """The factor of each weight after dropout."""

    @classmethod
    def of(
        cls,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        query_lengths: Tensor,
        key_lengths: Tensor,
        visible: _Visible,
        scale: float | None,
        bias: Tensor | None = None,
        slopes: Tensor | None = None,
        dropout: float = 0.0,
        seed: Tensor | None = None,
    ) -> _Attention:
        """From tensors [batch, head, position, width]. Several heads of queries may share a head of keys."""
        query, key, value = (each.to(torch.promote_types(each.dtype, torch.float32)) for each in (query, key, value))
        key, value = (each.repeat_interleave(query.shape[1] // each.shape[1], 1) for each in (key, value))
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        scores = query @ key.mT * scale
        rows = torch.arange(query.shape[2], device=query.device)[:, None]
        columns = torch.arange(key.shape[2], device=query.device)
        own = rows + (key_lengths - query_lengths) if visible.ends_meet else rows
        if slopes is not None:
            scores = scores - (own - columns).abs() * slopes.reshape(-1, query.shape[1], 1, 1)
        if bias is not None:
            scores = scores + bias.to(scores.dtype)
        is_visible = (columns < key_lengths) & (rows < query_lengths)
        if visible.left is not None:
            is_visible = is_visible & (columns >= own - visible.left)
        if visible.right is not None:
            is_visible = is_visible & (columns <= own + visible.right)
        scores = torch.where(is_visible, scores, -math.inf)
        logsumexp = scores.logsumexp(-1)
        sees_nothing = logsumexp == -math.inf
        weights = torch.where(sees_nothing[..., None], 0, (scores - logsumexp[..., None]).exp())
        logsumexp = torch.where(sees_nothing, math.inf, logsumexp)
        kept = None if seed is None or dropout == 0 else _kept(weights, dropout, seed)
        return cls(query, key, value, weights, logsumexp, scale, kept)

    def among(self, logsumexp: Tensor) -> _Attention:
        """With the weights of these keys among more, whose scores have this `logsumexp`."""
        factor = torch.where(self.logsumexp == math.inf, 0, (self.logsumexp - logsumexp).exp())
        weights = self.weights * factor[..., None]
        return dataclasses.replace(self, weights=weights, logsumexp=logsumexp)

    @property
    def dropped(self) -> Tensor:
        return self.weights if self.kept is None else self.weights * self.kept

    def output(self) -> Tensor:
        return self.dropped @ self.value

    def gradients(
        self, grad: Tensor, heads: int, output: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """The gradients of queries, keys, values and bias. `heads` is the number of heads of keys. The `output` is
        needed if the weights are those of some keys among more."""
        grad = grad.to(self.query.dtype)
        to_weights = grad @ self.value.mT
        if self.kept is not None:
            to_weights = to_weights * self.kept
        products = self.weights * to_weights if output is None else grad * output.to(grad.dtype)
        to_scores = self.weights * (to_weights - products.sum(-1, keepdim=True))
        to_key, to_value = to_scores.mT @ self.query * self.scale, self.dropped.mT @ grad
        to_key, to_value = (each.unflatten(1, (heads, -1)).sum(2) for each in (to_key, to_value))
        return to_scores @ self.key * self.scale, to_key, to_value, to_scores


def _kept(weights: Tensor, dropout: float, seed: Tensor) -> Tensor:
    """The dropout factors; zero for dropped weights. The same seed gives the same factors, so the gradient needs
    only the seed."""
    counter = torch.arange(weights.numel(), device=weights.device).reshape(weights.shape)
    mixed = (counter + 1) * _GOLDEN + seed.flatten()[0].to(torch.int64)
    for shift, factor in _MIXERS:
        mixed = (mixed ^ _logical_shift(mixed, shift)) * factor
    uniform = _logical_shift(mixed ^ _logical_shift(mixed, 31), 40).to(weights.dtype) * 2.0**-24
    return torch.where(uniform >= dropout, 1 / (1 - dropout) if dropout < 1 else 0.0, 0.0).to(weights.dtype)


def _logical_shift(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _seed(dropout: float, like: Tensor) -> Tensor:
    if dropout == 0:
        return torch.zeros(2, dtype=torch.int64, device=like.device)
    return torch.randint(2**62, (2,), device=like.device)


def _flash(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    starts: tuple[Tensor | None, Tensor | None],
    sizes: tuple[int, int],
    dropout: float,
    is_causal: bool,
    seed: Tensor,
    scale: float | None,
    window: tuple[int | None, int | None],
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
) -> tuple[_Attention, _Sequences, _Sequences]:
    left, right = (None if limit is None or limit < 0 else limit for limit in window)
    if block_table is not None:
        # Pages of keys, and for each sequence its pages.
        key, value = (each[block_table].flatten(1, 2) for each in (key, value))
        starts = starts[0], None
    queries = _Sequences(starts[0], query.shape[1] if starts[0] is None else sizes[0])
    keys = _Sequences(starts[1], key.shape[1] if starts[1] is None else sizes[1])
    padded = queries.pad(query), keys.pad(key), keys.pad(value)
    key_lengths = keys.lengths(key) if seqused_k is None else seqused_k[:, None, None, None]
    visible = _Visible(left, 0 if is_causal else right, ends_meet=True)
    lengths = queries.lengths(query), key_lengths
    attention = _Attention.of(*padded, *lengths, visible, scale, None, alibi_slopes, dropout, seed)
    return attention, queries, keys


@register("aten::_flash_attention_forward")
def _flash_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    return_debug_mask: bool,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    seqused_k: Tensor | None = None,
    alibi_slopes: Tensor | None = None,
    block_table: Tensor | None = None,
    num_splits: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    seed = _seed(dropout_p, query)
    attention, queries, _ = _flash(
        query,
        key,
        value,
        (cum_seq_q, cum_seq_k),
        (max_q, max_k),
        dropout_p,
        is_causal,
        seed,
        scale,
        (window_size_left, window_size_right),
        seqused_k,
        alibi_slopes,
        block_table,
    )
    output = queries.pack(attention.output(), query.shape[0]).to(query.dtype)
    logsumexp = attention.logsumexp
    if cum_seq_q is not None:
        logsumexp = queries.pack(logsumexp[..., None], query.shape[0])[..., 0].t()
    mask = torch.empty(0, dtype=query.dtype, device=query.device)
    if return_debug_mask:
        mask = _debug_mask(attention, query)
    state = seed.to(torch.uint64), torch.zeros((), dtype=torch.uint64, device=query.device)
    return output, logsumexp.to(torch.float32), *state, mask


def _debug_mask(attention: _Attention, query: Tensor) -> Tensor:
    """The weights, negative if dropped, with the number of columns that PyTorch specifies."""
    weights = attention.weights
    if attention.kept is not None:
        weights = torch.where(attention.kept == 0, -weights, weights)
    rows, columns = weights.shape[-2:]
    if columns <= 256:
        width = 128 if columns <= 128 else 256
    else:
        width = math.ceil(rows / (128 if query.shape[-1] > 64 else 256))
    return torch.nn.functional.pad(weights, (0, width - columns)).to(query.dtype)


@register("aten::_flash_attention_backward")
def _flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    cum_seq_q: Tensor | None,
    cum_seq_k: Tensor | None,
    max_q: int,
    max_k: int,
    dropout_p: float,
    is_causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, ...]:
    attention, queries, keys = _flash(
        query,
        key,
        value,
        (cum_seq_q, cum_seq_k),
        (max_q, max_k),
        dropout_p,
        is_causal,
        rng_state,
        scale,
        (window_size_left, window_size_right),
    )
    grads = attention.gradients(queries.pad(grad_out), key.shape[-2])[:3]
    sides = (queries, query), (keys, key), (keys, value)
    return tuple(side.pack(grad, x.shape[0]).to(x.dtype) for grad, (side, x) in zip(grads, sides, strict=True))


def _efficient(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    starts: tuple[Tensor | None, Tensor | None],
    sizes: tuple[int | None, int | None],
    dropout: float,
    custom_mask_type: int,
    seed: Tensor,
    scale: float | None,
    seqlen_k: Tensor | None,
    window_size: int | None,
) -> tuple[_Attention, _Sequences, _Sequences]:
    # Packed sequences are a batch of one.
    queries, keys = (
        _Sequences(start, x.shape[1] if start is None or size is None else size)
        for start, size, x in zip(starts, sizes, (query, key), strict=True)
    )
    padded = _padded(queries, query), _padded(keys, key), _padded(keys, value)
    key_lengths = keys.lengths(key) if seqlen_k is None else seqlen_k[:, None, None, None]
    left = window_size - 1 if window_size else None
    visible = _Visible(left, 0 if custom_mask_type else None, ends_meet=custom_mask_type == 2)
    lengths = queries.lengths(query), key_lengths
    attention = _Attention.of(*padded, *lengths, visible, scale, bias, None, dropout, seed)
    return attention, queries, keys


def _padded(side: _Sequences, x: Tensor) -> Tensor:
    return side.pad(x if side.starts is None else x[0])


def _packed_like(side: _Sequences, padded: Tensor, x: Tensor) -> Tensor:
    packed = side.pack(padded, x.shape[1])
    return (packed if side.starts is None else packed[None]).to(x.dtype)


@register("torchtpu::efficient_attention")
def _efficient_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    dropout_p: float,
    custom_mask_type: int,
    compute_log_sumexp: bool = False,
    *,
    scale: float | None = None,
    seqlen_k: Tensor | None = None,
    window_size: int | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    seed = _seed(dropout_p, query)
    attention, queries, _ = _efficient(
        query,
        key,
        value,
        bias,
        (cu_seqlens_q, cu_seqlens_k),
        (max_seqlen_q, max_seqlen_k),
        dropout_p,
        custom_mask_type,
        seed,
        scale,
        seqlen_k,
        window_size,
    )
    output = _packed_like(queries, attention.output(), query)
    # CUDA's kernel writes blocks of 32 rows.
    padding = (0, -queries.size % 32)
    logsumexp = torch.nn.functional.pad(attention.logsumexp, padding, value=math.inf).to(torch.float32)
    return output, logsumexp if compute_log_sumexp else logsumexp[..., :0], seed[0], seed[1]


@register("aten::_efficient_attention_backward")
def _efficient_attention_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    out: Tensor,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int,
    max_seqlen_k: int,
    logsumexp: Tensor,
    dropout_p: float,
    philox_seed: Tensor,
    philox_offset: Tensor,
    custom_mask_type: int,
    bias_requires_grad: bool,
    *,
    scale: float | None = None,
    num_splits_key: int | None = None,
    window_size: int | None = None,
    shared_storage_dqdkdv: bool = False,
) -> tuple[Tensor, ...]:
    attention, queries, keys = _efficient(
        query,
        key,
        value,
        bias,
        (cu_seqlens_q, cu_seqlens_k),
        (max_seqlen_q, max_seqlen_k),
        dropout_p,
        custom_mask_type,
        philox_seed,
        scale,
        None,
        window_size,
    )
    *grads, to_scores = attention.gradients(_padded(queries, grad_out_), key.shape[-2])
    sides = (queries, query), (keys, key), (keys, value)
    to_inputs = [_packed_like(side, grad, x) for grad, (side, x) in zip(grads, sides, strict=True)]
    if bias is None or not bias_requires_grad:
        return *to_inputs, torch.empty((), device=query.device) if bias is None else torch.zeros_like(bias)
    return *to_inputs, to_scores.sum_to_size(bias.shape).to(bias.dtype)


def _dense(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    dropout: float,
    is_causal: bool,
    seed: Tensor,
    scale: float | None,
) -> _Attention:
    """Of tensors [batch, head, position, width]."""
    query_lengths, key_lengths = (torch.full((1, 1, 1, 1), x.shape[2], device=x.device) for x in (query, key))
    visible = _Visible(None, 0 if is_causal else None, ends_meet=False)
    return _Attention.of(query, key, value, query_lengths, key_lengths, visible, scale, bias, None, dropout, seed)


@register("aten::_scaled_dot_product_efficient_attention")
def _scaled_dot_product_efficient_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    seed = _seed(dropout_p, query)
    attention = _dense(query, key, value, attn_bias, dropout_p, is_causal, seed, scale)
    # As in `_efficient_attention_forward`.
    padding = (0, -query.shape[2] % 32)
    logsumexp = torch.nn.functional.pad(attention.logsumexp, padding, value=math.inf).to(torch.float32)
    # PyTorch's kernels have the heads inside the positions.
    output = attention.output().to(query.dtype).transpose(1, 2).contiguous().transpose(1, 2)
    return output, logsumexp if compute_log_sumexp else logsumexp[..., :0], seed[0], seed[1]


@register("aten::_scaled_dot_product_efficient_attention_backward")
def _scaled_dot_product_efficient_attention_backward(
    grad_out_: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_bias: Tensor | None,
    out: Tensor,
    logsumexp: Tensor,
    philox_seed: Tensor,
    philox_offset: Tensor,
    dropout_p: float,
    grad_input_mask: list[bool],
    is_causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    """`out` and `logsumexp` may be those of more keys than `key` has: each part of a ring of keys has its gradients."""
    attention = _dense(query, key, value, attn_bias, dropout_p, is_causal, philox_seed, scale)
    attention = attention.among(logsumexp[..., : query.shape[2]])
    *grads, to_scores = attention.gradients(grad_out_, key.shape[1], out)
    to_inputs = [grad.to(x.dtype) for grad, x in zip(grads, (query, key, value), strict=True)]
    if attn_bias is None or not grad_input_mask[3]:
        return *to_inputs, None
    return *to_inputs, to_scores.sum_to_size(attn_bias.shape).to(attn_bias.dtype)
