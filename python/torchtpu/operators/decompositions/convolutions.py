"""Convolution operators of single backends or special cases, as calls of the general convolution."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchtpu.operators.registry import register

Sizes = Sequence[int]


def _convolution(
    x: Tensor, weight: Tensor, bias: Tensor | None, stride: Sizes, padding: Sizes, dilation: Sizes, groups: int = 1
) -> Tensor:
    return torch.convolution(x, weight, bias, stride, padding, dilation, False, [0] * len(stride), groups)


def _spread(kernel_size: Sizes, *given: Sizes) -> list[Sizes]:
    """Sizes for each dimension of the kernel. A single size is used for all dimensions."""
    return [list(sizes) * (len(kernel_size) // len(sizes)) for sizes in given]


@register("aten::_slow_conv2d_forward", "aten::slow_conv3d_forward")
def _slow_convolution(
    self: Tensor, weight: Tensor, kernel_size: Sizes, bias: Tensor | None, stride: Sizes, padding: Sizes
) -> Tensor:
    # Some callers pass the weight as a matrix.
    weight = weight.reshape(weight.shape[0], -1, *kernel_size)
    return _convolution(self, weight, bias, stride, padding, [1] * len(stride))


@register("aten::_slow_conv2d_backward.output_mask")
def _slow_convolution_backward(
    grad_output: Tensor,
    self: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    stride: Sizes,
    padding: Sizes,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, ...]:
    ones, zeros = [1] * len(stride), [0] * len(stride)
    bias = [weight.shape[0]]
    return torch.ops.aten.convolution_backward(
        grad_output, self, weight, bias, stride, padding, ones, False, zeros, 1, output_mask
    )


@register("aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d")
def _dilated_convolution(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    dilation: Sizes = (1,),
) -> Tensor:
    stride, padding, dilation = _spread(kernel_size, stride, padding, dilation)
    return _convolution(self, weight, bias, stride, padding, dilation)


@register("aten::_conv_depthwise2d", "aten::conv_depthwise3d")
def _depthwise_convolution(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> Tensor:
    return _convolution(self, weight, bias, stride, padding, dilation, self.shape[-len(stride) - 1])


@register("aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d")
def _transposed_convolution(
    self: Tensor,
    weight: Tensor,
    kernel_size: Sizes,
    bias: Tensor | None = None,
    stride: Sizes = (1,),
    padding: Sizes = (0,),
    output_padding: Sizes = (0,),
    dilation: Sizes = (1,),
) -> Tensor:
    stride, padding, dilation, output_padding = _spread(kernel_size, stride, padding, dilation, output_padding)
    return torch.convolution(self, weight, bias, stride, padding, dilation, True, output_padding, 1)
