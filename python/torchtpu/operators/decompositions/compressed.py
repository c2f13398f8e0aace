"""Conversion between the compressed indices of sparse tensors and coordinates, with rows of the table."""

from __future__ import annotations

import torch
from torch import Tensor

from torchtpu.operators.registry import register


@register("aten::_convert_indices_from_coo_to_csr")
def compress(self: Tensor, size: int, *, out_int32: bool = False) -> Tensor:
    """The start of each line in sorted line numbers, and the end of the last line."""
    lines = torch.arange(size + 1, dtype=self.dtype, device=self.device)
    return torch.searchsorted(self, lines, out_int32=out_int32)


@register("aten::_convert_indices_from_csr_to_coo")
def coordinates(compressed: Tensor, plain: Tensor, *, out_int32: bool = False, transpose: bool = False) -> Tensor:
    """As rows: the coordinates of the batch, the line of each element, and its plain index."""
    nnz = plain.shape[-1]
    numbers = torch.arange(nnz, dtype=compressed.dtype, device=compressed.device)
    batch = plain.shape[:-1]
    lines = torch.searchsorted(compressed, numbers.expand(plain.shape).contiguous(), right=True) - 1
    rows = [
        torch.arange(size, device=plain.device).view(-1, *[1] * (plain.dim() - 1 - at)).expand(plain.shape)
        for at, size in enumerate(batch)
    ]
    rows += [plain, lines] if transpose else [lines, plain]
    dtype = torch.int32 if out_int32 else torch.int64
    return torch.stack([row.reshape(-1).to(dtype) for row in rows])
