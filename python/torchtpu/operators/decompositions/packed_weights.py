"""Weights of 4 bits, two in a byte, as torchao's kernels for CUDA take them.

CUDA orders packed weights as its tensor cores read them. Here they keep their order; only the shape is CUDA's.
"""

from __future__ import annotations

import torch
from torch import Tensor

from torchtpu.operators.registry import register

TILES = (2, 4, 8)
GROUPS = (32, 64, 128, 256)
FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@register("aten::_convert_weight_to_int4pack")
def _packed(self: Tensor, inner_k_tiles: int) -> Tensor:
    """Packs weights.

    Args:
        self: uint8 [rows, columns / 2]. The first weight of a byte is in its upper bits.
        inner_k_tiles: 2, 4 or 8. It decides the shape.

    Returns:
        int32 [rows / 8, columns / (16 * inner_k_tiles), 32, inner_k_tiles / 2].
    """
    torch._check(self.dim() == 2 and self.dtype == torch.uint8, lambda: "the weight must be a 2D tensor of uint8")
    rows, columns = self.shape[0], self.shape[1] * 2
    torch._check(inner_k_tiles in TILES, lambda: f"innerKTiles must be one of {TILES}, but it is {inner_k_tiles}")
    torch._check(
        rows % 8 == 0 and columns % (16 * inner_k_tiles) == 0,
        lambda: (
            f"a weight of {rows} rows and {columns} columns cannot be packed: rows must be divisible by 8 and "
            f"columns by {16 * inner_k_tiles}"
        ),
    )
    words = self.contiguous().view(torch.int32)
    return words.reshape(rows // 8, columns // (16 * inner_k_tiles), 32, inner_k_tiles // 2)


@register("aten::_weight_int4pack_mm")
def _product(self: Tensor, mat2: Tensor, group: int, scales_and_zeros: Tensor) -> Tensor:
    """Multiplies rows by packed weights, of which each is `(weight - 8) * scale + zero`.

    Args:
        self: floats of 16 or 32 bits [..., columns].
        mat2: packed weights.
        group: the number of columns with the same scale and zero: 32, 64, 128 or 256.
        scales_and_zeros: [columns / group, rows, 2].

    Returns:
        [..., rows], of the dtype of `self`.
    """
    torch._check(self.dim() == 2, lambda: "x must be a 2D tensor")
    torch._check(self.dtype in FLOATS, lambda: f"expected x to be f32/f16/bf16, got {self.dtype}")
    torch._check(mat2.dim() == 4 and mat2.dtype == torch.int32, lambda: "the weight must be a 4D tensor of int32")
    rows, columns = mat2.shape[0] * 8, mat2.shape[1] * mat2.shape[3] * 32
    torch._check(
        group in GROUPS and columns % group == 0,
        lambda: f"qGroupSize must be one of {GROUPS} and divide the {columns} columns, but it is {group}",
    )
    groups = columns // group
    torch._check(
        self.shape[1] == columns and tuple(scales_and_zeros.shape) == (groups, rows, 2),
        lambda: (
            f"a packed weight of {rows} rows and {columns} columns needs an input of [*, {columns}] and scales of "
            f"{[groups, rows, 2]}, but they are {list(self.shape)} and {list(scales_and_zeros.shape)}"
        ),
    )
    in_bytes = mat2.contiguous().view(torch.uint8).reshape(rows, groups, group // 2)
    weight = torch.stack([in_bytes >> 4, in_bytes & 15], dim=3).reshape(rows, groups, group)
    scale, zero = scales_and_zeros.float().transpose(0, 1).unsqueeze(3).unbind(2)
    wide = ((weight.float() - 8) * scale + zero).reshape(rows, columns).to(self.dtype)
    return self @ wide.T
