"""Grouped matrix products, as in mixture-of-experts layers: each row is multiplied by the matrix of its group.

The ends of groups depend on data, so the rows are laid out in blocks of BLOCK rows that each belong to one group:

    T rows in G groups, of lengths n[g]: block b of group g has the rows start[g] + BLOCK * b + (0 .. BLOCK - 1)

There are at most T // BLOCK + G blocks, and one batched product computes all: [blocks, BLOCK, K] [blocks, K, N].
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from torchtpu.kernels import routing
from torchtpu.operators.registry import register

# Larger blocks use a matrix unit better, but leave more of a group's last block empty.
BLOCKS = (8, 16, 32, 64, 128)


@dataclasses.dataclass(frozen=True)
class _Blocks:
    block: int
    starts: Tensor
    """The first row of each group."""
    ends: Tensor
    first: Tensor
    """The first block of each group."""
    group: Tensor
    """The group of each block."""
    rows: Tensor
    """The rows of each block: [blocks, BLOCK]."""
    is_real: Tensor
    """Whether each of these rows belongs to the group: [blocks, BLOCK, 1]."""

    @classmethod
    def of(cls, ends: Tensor, rows: int) -> _Blocks:
        groups = ends.shape[0]
        block = next((size for size in BLOCKS if size * groups >= rows), BLOCKS[-1])
        ends = ends.to(torch.int64)
        starts = torch.cat([torch.zeros_like(ends[:1]), ends[:-1]])
        last = ((ends - starts + block - 1) // block).cumsum(0)
        first = torch.cat([torch.zeros_like(last[:1]), last[:-1]])
        numbers = torch.arange(rows // block + groups, device=ends.device)
        group = torch.searchsorted(last, numbers, right=True).clamp(max=groups - 1)
        begin = starts[group] + (numbers - first[group]) * block
        places = begin[:, None] + torch.arange(block, device=ends.device)
        is_real = (places < ends[group][:, None]) & (numbers < last[-1])[:, None]
        return cls(block, starts, ends, first, group, places.clamp(0, rows - 1), is_real[..., None])

    def lay_out(self, x: Tensor) -> Tensor:
        """[rows, width] -> [blocks, BLOCK, width]; zero where a block has no row."""
        return torch.where(self.is_real, x[self.rows], 0)

    def gather(self, blocks: Tensor, rows: int) -> Tensor:
        """The inverse of `lay_out`. Rows after the last group are zero."""
        row = torch.arange(rows, device=blocks.device)
        group = _group_of(row, self.ends)
        place = row - self.starts[group]
        number = (self.first[group] + place // self.block).clamp(max=blocks.shape[0] - 1)
        return torch.where((row < self.ends[-1])[:, None], blocks[number, place % self.block], 0)


def _group_of(rows: Tensor, ends: Tensor) -> Tensor:
    """The group of each row; the last one of those after it."""
    return torch.searchsorted(ends, rows, right=True).clamp(max=ends.shape[0] - 1)


@register("aten::_grouped_mm", "torchtpu::grouped_mm")
def _grouped_mm(
    self: Tensor,
    mat2: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> Tensor:
    if bias is not None:
        raise RuntimeError("Bias not supported yet")
    if offs is None:
        result = self @ mat2
    elif self.dim() == 2 and mat2.dim() == 3:
        result = _rows_with_matrices(self, mat2, offs)
    elif self.dim() == 3:
        result = _rows_with_matrices(mat2.mT, self.mT, offs).mT
    else:
        result = _groups_of_columns(self, mat2, offs)
    return result.to(out_dtype or self.dtype)


@register("aten::_scaled_grouped_mm")
def _scaled_grouped_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    """Products of float8, with a scale for each row of `self` and each column of `mat2`. `use_fast_accum` changes
    nothing: sums are in float32."""
    if scale_a.dtype != torch.float32:
        raise NotImplementedError("_scaled_grouped_mm: scales of blocks are not supported on this device")
    # bfloat16 holds all numbers of float8.
    left, right = self.to(torch.bfloat16), mat2.to(torch.bfloat16)
    if offs is None:
        result = torch.bmm(left, right, out_dtype=torch.float32) * scale_a[..., None] * scale_b[:, None]
    elif left.dim() == 2 and right.dim() == 3:
        result = _scaled_rows(left, right, scale_a, scale_b, offs)
    elif left.dim() == 3:
        result = _scaled_rows(right.mT, left.mT, scale_b, scale_a, offs).mT
    else:
        groups = offs.shape[0]
        scales = scale_a.view(groups, -1, 1) * scale_b.view(groups, 1, -1)
        result = _groups_of_columns(left, right, offs) * scales
    return result.to(out_dtype or torch.bfloat16)


@register("aten::_scaled_grouped_mm_v2")
def _scaled_grouped_mm_v2(
    self: Tensor,
    mat2: Tensor,
    scale_a: list[Tensor],
    recipe_a: list[int],
    swizzle_a: list[int],
    scale_b: list[Tensor],
    recipe_b: list[int],
    swizzle_b: list[int],
    offs: Tensor | None = None,
    bias: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    contraction_dim: list[int] | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    return _scaled_grouped_mm(self, mat2, scale_a[0], scale_b[0], offs, bias, None, out_dtype)


def _scaled_rows(x: Tensor, matrices: Tensor, of_rows: Tensor, of_columns: Tensor, ends: Tensor) -> Tensor:
    """[T, K] [G, K, N] -> [T, N], times a scale for each row, and one for each column of each matrix."""
    group = _group_of(torch.arange(x.shape[0], device=x.device), ends)
    return _rows_with_matrices(x, matrices, ends, torch.float32) * of_rows[:, None] * of_columns[group]


def _rows_with_matrices(x: Tensor, matrices: Tensor, ends: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """[T, K] [G, K, N] -> [T, N], in a dtype."""
    dtype = dtype or x.dtype
    if x.shape[0] == 0:
        return x.new_zeros(0, matrices.shape[-1], dtype=dtype)
    product = routing.grouped(routing.GROUPED, x, matrices, ends) if dtype == x.dtype else None
    if product is not None:
        rows = torch.arange(x.shape[0], device=x.device)
        return torch.where((rows < ends[-1])[:, None], product, 0)
    blocks = _Blocks.of(ends, x.shape[0])
    left, right = blocks.lay_out(x), matrices[blocks.group]
    products = left @ right if dtype == x.dtype else torch.bmm(left, right, out_dtype=dtype)
    return blocks.gather(products, x.shape[0])


def _groups_of_columns(x: Tensor, y: Tensor, ends: Tensor) -> Tensor:
    """[M, T] [T, N] -> [G, M, N], the gradient of the matrices. Sums are in float32."""
    sums = routing.grouped(routing.COLUMNS, x.mT, y, ends)
    if sums is not None:
        return sums
    result = torch.zeros(ends.shape[0], x.shape[0], y.shape[1], dtype=torch.float32, device=x.device)
    if y.shape[0] == 0:
        return result
    wide = torch.promote_types(x.dtype, torch.float32)
    blocks = _Blocks.of(ends, y.shape[0])
    products = blocks.lay_out(x.mT.to(wide)).mT @ blocks.lay_out(y.to(wide))
    return result.to(wide).index_add(0, blocks.group, products)
