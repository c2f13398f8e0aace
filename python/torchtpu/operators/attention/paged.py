"""`torch.ops.torchtpu.ragged_paged_attention`: attention of many sequences of different lengths over a cache of pages.

It is causal attention of the newest tokens of several sequences over all keys of their sequences. One program serves
all mixes of lengths, because lengths are data. Let t = tokens, h = query heads, k = key heads, d = width of a head,
s = sequences, n = pages, m = pages that a sequence may have.

    query: (t, h, d), a floating point dtype. The tokens of sequence i are starts[i] to starts[i + 1] - 1. They are the
        last tokens of the sequence.
    pages: (n, positions in a page, 2 * k, d), the query's dtype. Row 2j of a position is the key of head j, and row
        2j + 1 its value. The keys of the tokens in the query are already there. h is a multiple of k.
    lengths: (s,), int32. The number of keys of each sequence.
    tables: (s, m), int32. The numbers of each sequence's pages, in order.
    starts: (s + 1,), int32, ascending, from 0.
    count: (1,), int32. The number of sequences. What stands behind them in lengths, tables and starts is ignored.
    scale: What products of queries and keys are multiplied with.
    window: How many keys each token sees, itself included; None for all.
    soft_cap: If given, a score x becomes soft_cap * tanh(x / soft_cap).

The result is (t, h, d) of the query's dtype. Rows of tokens that belong to no sequence are undefined. ValueError:
shapes do not belong together, or a number is not positive. TypeError: query and pages are not of one floating point
dtype, or another tensor is not int32.

A row of the table computes it (crates/aten/src/ops/nn/paged_attention.rs), and a kernel where programs are made for a
TPU (`torchtpu.kernels.routing`).
"""

from __future__ import annotations

import torch
from torch import Tensor

NAME = "ragged_paged_attention"
_SCHEMA = (
    f"{NAME}(Tensor query, Tensor pages, Tensor lengths, Tensor tables, Tensor starts, Tensor count, *, "
    "float scale=1.0, int? window=None, float? soft_cap=None) -> Tensor"
)
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Defines the operator. The table has its kernel for the device."""
    library = torch.library.Library("torchtpu", "FRAGMENT")
    library.define(_SCHEMA, tags=(torch.Tag.pt2_compliant_tag,))
    torch.library.register_fake(f"torchtpu::{NAME}", _like, lib=library)
    _libraries.append(library)


def _like(
    query: Tensor,
    pages: Tensor,
    lengths: Tensor,
    tables: Tensor,
    starts: Tensor,
    count: Tensor,
    *,
    scale: float = 1.0,
    window: int | None = None,
    soft_cap: float | None = None,
) -> Tensor:
    """Checks a call, and returns a tensor without data of the result's form."""
    expected = {"query": (query, 3), "pages": (pages, 4), "lengths": (lengths, 1), "tables": (tables, 2)}
    for name, (tensor, rank) in (expected | {"starts": (starts, 1), "count": (count, 1)}).items():
        if tensor.dim() != rank:
            raise ValueError(f"{NAME}: {name} has {tensor.dim()} dimensions instead of {rank}")
    if pages.dtype != query.dtype or not query.dtype.is_floating_point:
        raise TypeError(f"{NAME}: query is {query.dtype} and pages is {pages.dtype}; both must be of one float dtype")
    for name, tensor in {"lengths": lengths, "tables": tables, "starts": starts, "count": count}.items():
        if tensor.dtype != torch.int32:
            raise TypeError(f"{NAME}: {name} is {tensor.dtype} instead of torch.int32")
    sequences = lengths.shape[0]
    if tables.shape[0] != sequences or starts.shape[0] != sequences + 1 or count.shape[0] != 1:
        raise ValueError(
            f"{NAME}: for lengths of shape {tuple(lengths.shape)}, tables, starts and count have the shapes "
            f"{tuple(tables.shape)}, {tuple(starts.shape)} and {tuple(count.shape)}"
        )
    heads, rows = query.shape[1], pages.shape[2]
    if rows == 0 or rows % 2 or heads % (rows // 2) or query.shape[2] != pages.shape[3]:
        raise ValueError(
            f"{NAME}: a query of shape {tuple(query.shape)} does not fit pages of shape {tuple(pages.shape)}: they "
            "have a key and a value of the query's width for each key head, and query heads are a multiple of key heads"
        )
    if 0 in (sequences, tables.shape[1], pages.shape[0], pages.shape[1]):
        raise ValueError(f"{NAME}: there is no sequence, no page or no position in a page")
    if (window is not None and window < 1) or (soft_cap is not None and soft_cap <= 0):
        raise ValueError(f"{NAME}: window and soft_cap must be positive, not {window} and {soft_cap}")
    return torch.empty_like(query, memory_format=torch.contiguous_format)
