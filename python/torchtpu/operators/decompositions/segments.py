"""Reductions of segments, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from torchtpu.operators.registry import register

aten = torch.ops.aten


def _segments(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> tuple[Tensor, Tensor, list[int]]:
    """The segment of each element along the axis, the length of each segment, and the shape with one more segment.

    The axis is not negative.

    The additional last segment is for elements that belong to none.
    """
    if lengths is not None:
        ends = lengths.cumsum(-1)
    else:
        assert offsets is not None
        ends, lengths = offsets[..., 1:], offsets.diff(dim=-1)
    place = torch.arange(data.shape[axis], dtype=ends.dtype, device=data.device)
    lead = ends.shape[:-1]
    segment = torch.searchsorted(ends.contiguous(), place.expand(*lead, -1).contiguous(), right=True)
    trailing = [1] * (data.dim() - axis - 1)
    segment = segment.reshape(*segment.shape, *trailing).expand(data.shape)
    shape = [*data.shape[:axis], ends.shape[-1] + 1, *data.shape[axis + 1 :]]
    return segment, lengths.reshape(*lengths.shape, *trailing), shape


_SEGMENT_REDUCTIONS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "prod": ("prod", 1.0),
    "max": ("amax", -math.inf),
    "amax": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "amin": ("amin", math.inf),
}


@register("aten::segment_reduce")
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    if not data.is_floating_point():
        # PyTorch has no kernel for these dtypes on any device.
        raise NotImplementedError(f"segment_reduce is not implemented for {data.dtype}")
    axis %= data.dim()
    if lengths is not None and not unsafe:
        torch._assert_async((lengths >= 0).all(), "lengths contains negative value!")
        torch._assert_async(
            (lengths.sum(-1) == data.shape[axis]).all(),
            "segment_reduce(): Expected all rows of lengths along axis "
            "to sum to data.size(lengths.dim()-1) when !unsafe.",
        )
    segment, lengths, shape = _segments(data, lengths, offsets, axis)
    reduction, neutral = _SEGMENT_REDUCTIONS[reduce]
    start = data.new_full(shape, neutral if initial is None else initial)
    result = start.scatter_reduce(axis, segment, data, reduction).narrow(axis, 0, shape[axis] - 1)
    if reduce == "mean":
        empty = math.nan if initial is None else initial
        result = torch.where(lengths == 0, empty, result / lengths.clamp(min=1).to(data.dtype))
    return result


@register("aten::_segment_reduce_backward")
def _segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    axis %= data.dim()
    segment, lengths, shape = _segments(data, lengths, offsets, axis)
    sizes = [0] * (2 * data.dim())
    sizes[2 * (data.dim() - axis) - 1] = 1

    def of_segment(values: Tensor) -> Tensor:
        """For each element, the value of its segment; zero outside of all segments."""
        return torch.constant_pad_nd(values.expand(grad.shape), sizes).gather(axis, segment)

    def over_segment(values: Tensor, reduction: str, neutral: float) -> Tensor:
        return values.new_full(shape, neutral).scatter_reduce(axis, segment, values, reduction).gather(axis, segment)

    each_grad = of_segment(grad)
    if reduce == "sum":
        return each_grad
    if reduce == "mean":
        return each_grad / of_segment(lengths.to(data.dtype)).clamp(min=1)
    if reduce == "prod":
        # For each element, the product of the others of its segment.
        is_zero, is_nan = data == 0, data.isnan()
        is_regular = ~(is_zero | is_nan)

        def others(is_it: Tensor) -> Tensor:
            """Whether another element of the segment is such."""
            return over_segment(is_it.to(data.dtype), "sum", 0.0) - is_it.to(data.dtype) > 0

        regular = torch.where(is_regular, data, 1.0)
        without = over_segment(regular, "prod", 1.0 if initial is None else initial) / regular
        without = torch.where(others(is_nan), math.nan, torch.where(others(is_zero), 0.0, without))
        return each_grad * without
    is_chosen = ((data == of_segment(output)) | data.isnan()).to(data.dtype)
    return each_grad * is_chosen / over_segment(is_chosen, "sum", 0.0).clamp(min=1)
