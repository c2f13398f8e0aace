"""The attention backend: keys and values are written to pages, and `ragged_paged_attention` reads them."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor
from vllm.v1.attention.backend import AttentionBackend, AttentionImpl, AttentionType
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend


@dataclasses.dataclass(frozen=True)
class Batch:
    """The sequences of a step: the arguments of `ragged_paged_attention`, and where new keys go."""

    lengths: Tensor
    """(sequences,), int32. The keys of each sequence, the new ones included."""
    tables: Tensor
    """(sequences, pages of a sequence), int32."""
    starts: Tensor
    """(sequences + 1,), int32. The first token of each sequence."""
    count: Tensor
    """(1,), int32. The number of sequences."""
    slots: Tensor
    """(tokens,), int32. The position of each token's key among all positions of all pages."""


@register_backend(AttentionBackendEnum.CUSTOM)
class PagedBackend(AttentionBackend):
    supported_dtypes = [torch.bfloat16, torch.float32, torch.float16]  # noqa: RUF012 (vLLM's name)
    forward_includes_kv_cache_update = True

    @staticmethod
    def get_name() -> str:
        return "CUSTOM"

    @staticmethod
    def get_impl_cls() -> type[PagedAttention]:
        return PagedAttention

    @staticmethod
    def get_builder_cls() -> Any:
        raise NotImplementedError("torchtpu: a step's metadata are made in its program")

    @classmethod
    def supports_sliding_window(cls) -> bool:
        return True


class PagedAttention(AttentionImpl):
    def __init__(
        self,
        num_heads: int,
        head_size: int,
        scale: float,
        num_kv_heads: int | None = None,
        alibi_slopes: list[float] | None = None,
        sliding_window: int | None = None,
        kv_cache_dtype: str = "auto",
        logits_soft_cap: float | None = None,
        attn_type: str = AttentionType.DECODER,
        kv_sharing_target_layer_name: str | None = None,
        **others: Any,
    ) -> None:
        given = {"alibi": alibi_slopes, "layers that share a cache": kv_sharing_target_layer_name, **others}
        if wrong := [name for name, value in given.items() if value is not None]:
            raise NotImplementedError(f"torchtpu: attention with {', '.join(wrong)} is not supported")
        if attn_type != AttentionType.DECODER:
            raise NotImplementedError(f"torchtpu: attention of type {attn_type} is not supported: decoders are")
        self.num_heads = num_heads
        self.head_size = head_size
        self.scale = float(scale)
        self.num_kv_heads = num_heads if num_kv_heads is None else num_kv_heads
        self.window = sliding_window
        self.soft_cap = logits_soft_cap or None
        self.kv_cache_dtype = kv_cache_dtype

    def forward(
        self,
        layer: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        kv_cache: Tensor,
        attn_metadata: Batch,
        output: Tensor,
        output_scale: Tensor | None = None,
        output_block_scale: Tensor | None = None,
    ) -> Tensor:
        """query: (tokens, heads, width). key, value: (tokens, key heads, width). kv_cache: (pages, positions in a page,
        2 * key heads, width), written in place."""
        rows = torch.stack([key, value], 2).flatten(1, 2).to(kv_cache.dtype)
        # Slots are the scheduler's, so they are not checked.
        torch.ops.aten._index_put_impl_(kv_cache.flatten(0, 1), [attn_metadata.slots], rows, False, True)
        result = torch.ops.torchtpu.ragged_paged_attention(
            query.to(kv_cache.dtype),
            kv_cache,
            attn_metadata.lengths,
            attn_metadata.tables,
            attn_metadata.starts,
            attn_metadata.count,
            scale=self.scale,
            window=self.window,
            soft_cap=self.soft_cap,
        )
        return output.copy_(result)
