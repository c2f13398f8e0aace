"""Kernels for nested tensors of the strided layout. PyTorch's modules call these operators, and its own kernels of them
read memory directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten


def _transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows are padded to the longest: results of [batches, heads, tokens, width of a head]."""
    return aten._transform_bias_rescale_qkv(qkv.to_padded_tensor(0.0), qkv_bias, num_heads)


def _native_layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    whole = input.contiguous()
    rows = whole.values().view(-1, *normalized_shape)
    result, mean, rstd = aten.native_layer_norm(rows, normalized_shape, weight, bias, eps)
    return aten._nested_view_from_buffer(result.view(-1), *_places(whole)), mean, rstd


def _places(nested: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sizes, strides and offsets of the tensors in a nested tensor; they are on the CPU."""
    return nested._nested_tensor_size(), nested._nested_tensor_strides(), nested._nested_tensor_storage_offsets()


KERNELS: dict[str, Callable[..., Any]] = {
    "_transform_bias_rescale_qkv": _transform_bias_rescale_qkv,
    "native_layer_norm": _native_layer_norm,
}
