"""Kernels for nested tensors of the strided layout. PyTorch's modules call these operators, and its own kernels of them
read memory directly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import canonicalize_dim

from torchtpu.operators.sparse.places import sum_rows

aten = torch.ops.aten


def _transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int) -> tuple[Tensor, Tensor, Tensor]:
    """Rows are padded to the longest: results of [batches, heads, tokens, width of a head]."""
    return aten._transform_bias_rescale_qkv(qkv.to_padded_tensor(0.0), qkv_bias, num_heads)


def _native_layer_norm(
    input: Tensor, normalized_shape: list[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    _check_normalized(input, normalized_shape)
    whole = input.contiguous()
    rows = whole.values().view(-1, *normalized_shape)
    result, mean, rstd = aten.native_layer_norm(rows, normalized_shape, weight, bias, eps)
    return aten._nested_view_from_buffer(result.view(-1), *_places(whole)), mean, rstd


def _check_normalized(input: Tensor, normalized_shape: list[int]) -> None:
    """PyTorch's kernel refuses the same calls."""
    sizes = input._nested_tensor_size()
    for i, expected in enumerate(normalized_shape):
        dim = canonicalize_dim(input.dim(), i - len(normalized_shape))
        given = set(sizes[:, dim - 1].tolist()) if dim > 0 else {len(sizes)}
        if len(given) > 1:
            raise RuntimeError("normalized_shape extends into irregular dimensions for the nested tensor")
        if given and given != {expected}:
            raise RuntimeError(f"The shape at dimension {i}of normalized_shape doesn't match the input")


def _native_layer_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    normalized_shape: list[int],
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    output_mask: list[bool],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    whole = input.contiguous()
    grad, rows = (each.contiguous().values().view(-1, *normalized_shape) for each in (grad_out, whole))
    of_rows, of_weight, of_bias = aten.native_layer_norm_backward(
        grad, rows, normalized_shape, mean, rstd, weight, bias, output_mask
    )
    if of_rows is not None:
        of_rows = aten._nested_view_from_buffer(of_rows.view(-1), *_places(whole))
    return of_rows, of_weight, of_bias


def _sum(self: Tensor, dim: list[int] | None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Sums over the last dimension. PyTorch's kernel refuses the same calls."""

    def refuse_unless(condition: bool, why: str) -> None:
        if not condition:
            raise RuntimeError(f"NestedTensor {why}")

    dims = [canonicalize_dim(self.dim(), each) for each in dim or ()]
    refuse_unless(keepdim, "always requires keepdim=True for now.")
    refuse_unless(dtype is None, "does not support dtype argument for now.")
    refuse_unless(len(dims) == 1, "only allows reduction of a single dimension for now.")
    last = self.dim() - 1
    where = f"got dimension {dims[0]} instead."
    refuse_unless(dims[0] == last, f"can only be reduced across the last dimension for now {where}")
    refuse_unless(self.is_contiguous(), "does not support reductions when the input is noncontiguous for now.")
    sizes, widths = self._nested_tensor_size().clone(), _widths(self)
    sizes[:, -1] = 1
    counts = sizes.prod(1)
    wide = torch.float32 if self.dtype in (torch.float16, torch.bfloat16) else self.dtype
    sums = sum_rows(self.values().to(wide), _numbers(widths, self), len(widths))
    return aten._nested_view_from_buffer(sums.to(self.dtype), sizes, _row_major(sizes), counts.cumsum(0) - counts)


def _nested_sum_backward(grad: Tensor, self: Tensor, dim: list[int] | None, keepdim: bool = False) -> Tensor:
    buffer = grad.contiguous().values()[_numbers(_widths(self), self)]
    return aten._nested_view_from_buffer(buffer, *_places(self))


def _widths(nested: Tensor) -> Tensor:
    """The number of elements in each row along the last dimension: int64 on the CPU."""
    sizes = nested._nested_tensor_size()
    return sizes[:, -1].repeat_interleave(sizes[:, :-1].prod(1))


def _numbers(widths: Tensor, nested: Tensor) -> Tensor:
    """The number of the row that each element belongs to."""
    return torch.arange(len(widths)).repeat_interleave(widths).to(nested.device)


def _row_major(sizes: Tensor) -> Tensor:
    """The strides of contiguous tensors."""
    return torch.cat([sizes[:, 1:], torch.ones_like(sizes[:, :1])], 1).flip(1).cumprod(1).flip(1)


def _places(nested: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The sizes, strides and offsets of the tensors in a nested tensor; they are on the CPU."""
    return nested._nested_tensor_size(), nested._nested_tensor_strides(), nested._nested_tensor_storage_offsets()


KERNELS: dict[str, Callable[..., Any]] = {
    "_nested_sum_backward": _nested_sum_backward,
    "_transform_bias_rescale_qkv": _transform_bias_rescale_qkv,
    "native_layer_norm": _native_layer_norm,
    "native_layer_norm_backward": _native_layer_norm_backward,
    "sum.dim_IntList": _sum,
}
