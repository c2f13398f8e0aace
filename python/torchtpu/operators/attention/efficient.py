"""Operators that return numbers besides tensors. An operator of our own computes the tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_OWN = (
    "efficient_attention(Tensor query, Tensor key, Tensor value, Tensor? bias, Tensor? cu_seqlens_q, "
    "Tensor? cu_seqlens_k, int? max_seqlen_q, int? max_seqlen_k, float dropout_p, int custom_mask_type, "
    "bool compute_log_sumexp=False, *, float? scale=None, Tensor? seqlen_k=None, int? window_size=None) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Registers the kernels before those of the table: they take precedence."""
    own = torch.library.Library("torchtpu", "FRAGMENT")
    own.define(_OWN, tags=(torch.Tag.nondeterministic_seeded,))
    library = torch.library.Library("aten", "IMPL")
    library.impl("_efficient_attention_forward", _efficient_attention_forward, "PrivateUse1")
    _libraries.extend((own, library))


def _efficient_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor | None,
    cu_seqlens_q: Tensor | None,
    cu_seqlens_k: Tensor | None,
    max_seqlen_q: int | None,
    max_seqlen_k: int | None,
    *rest: Any,
    **options: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, int, int]:
    if (cu_seqlens_q is None) != (cu_seqlens_k is None):
        raise RuntimeError("cu_seqlens_q and cu_seqlens_k are given together, or not at all")
    sizes = (query.shape[1], key.shape[1])
    if cu_seqlens_q is not None:
        if max_seqlen_q is None or max_seqlen_k is None:
            raise RuntimeError("max_seqlen_q and max_seqlen_k are needed with cu_seqlens_q and cu_seqlens_k")
        sizes = (max_seqlen_q, max_seqlen_k)
    tensors = torch.ops.torchtpu.efficient_attention(
        query, key, value, bias, cu_seqlens_q, cu_seqlens_k, *sizes, *rest, **options
    )
    return (*tensors, *sizes)
