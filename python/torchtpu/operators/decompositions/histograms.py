"""Histograms over one or more dimensions, as on PyTorch's CPU, with rows of the table."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from torchtpu.operators.registry import register

Range = Sequence[float] | None


@register("aten::histogram.bin_ct")
def histogram_with_count(
    self: Tensor, bins: int = 100, *, range: Range = None, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    edges = bin_edges(self.reshape(-1, 1), [bins], range=range)
    return _histogram(self.reshape(-1, 1), edges, _flat(weight), density), edges[0]


@register("aten::histogram.bins_tensor")
def histogram_with_edges(
    self: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    return _histogram(self.reshape(-1, 1), [bins], _flat(weight), density), bins.clone()


def _flat(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.reshape(-1)


@register("aten::_histogramdd_bin_edges")
def bin_edges(
    self: Tensor, bins: Sequence[int], *, range: Range = None, weight: Tensor | None = None, density: bool = False
) -> list[Tensor]:
    """The edges of equal bins between the smallest and largest coordinate of each dimension, or in `range`."""
    points = self.reshape(-1, self.shape[-1])
    edges = []
    for dimension, count in enumerate(bins):
        if range is not None:
            low, high = (self.new_full((), each) for each in range[2 * dimension : 2 * dimension + 2])
        elif points.shape[0] == 0:
            low, high = self.new_zeros(()), self.new_ones(())
        else:
            low, high = points[:, dimension].amin(), points[:, dimension].amax()
            message = f"torch.histogramdd: dimension {dimension}'s range is not finite"
            torch._assert_async(low.isfinite() & high.isfinite(), message)
        is_point = low == high
        low, high = torch.where(is_point, low - 0.5, low), torch.where(is_point, high + 0.5, high)
        edges.append(torch.linspace(low, high, count + 1, dtype=self.dtype, device=self.device))
    return edges


@register("aten::_histogramdd_from_bin_cts")
def histogram_of_counts(
    self: Tensor, bins: Sequence[int], *, range: Range = None, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    return _histogram(self, bin_edges(self, bins, range=range), weight, density)


@register("aten::_histogramdd_from_bin_tensors")
def histogram_of_edges(
    self: Tensor, bins: Sequence[Tensor], *, weight: Tensor | None = None, density: bool = False
) -> Tensor:
    return _histogram(self, bins, weight, density)


def _histogram(points: Tensor, edges: Sequence[Tensor], weight: Tensor | None, density: bool) -> Tensor:
    torch._check(points.is_floating_point(), lambda: f"histogram: expected floating point input, not {points.dtype}")
    for dimension, limits in enumerate(edges):
        if limits.dtype != points.dtype:
            raise RuntimeError(
                "torch.histogramdd: input tensor and bins tensors should have the same dtype, but got input with dtype "
                f"{points.dtype} and bins for dimension {dimension} with dtype {limits.dtype}"
            )
    if weight is not None and weight.dtype != points.dtype:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided, input tensor and weight tensor should have the same "
            f"dtype, but got input({points.dtype}), and weight({weight.dtype})"
        )
    if weight is not None and weight.shape != points.shape[:-1]:
        raise RuntimeError(
            "torch.histogramdd: if weight tensor is provided it should have the same shape as the input tensor "
            f"excluding its innermost dimension, but got input with shape {list(points.shape)} and weight with shape "
            f"{list(weight.shape)}"
        )
    points = points.reshape(-1, points.shape[-1])
    sizes = [each.shape[0] - 1 for each in edges]
    place = torch.zeros(points.shape[0], dtype=torch.int64, device=points.device)
    is_inside = torch.ones(points.shape[0], dtype=torch.bool, device=points.device)
    for dimension, (limits, size) in enumerate(zip(edges, sizes, strict=True)):
        coordinate = points[:, dimension].contiguous()
        is_inside = is_inside & (coordinate >= limits[0]) & (coordinate <= limits[-1])
        # The last bin includes its upper edge.
        found = torch.searchsorted(limits.contiguous(), coordinate, right=True) - 1
        place = place * size + found.clamp(0, max(size - 1, 0))
    weights = torch.ones_like(points[:, 0]) if weight is None else weight.reshape(-1).to(points.dtype)
    weights = torch.where(is_inside, weights, 0)
    counts = points.new_zeros(math.prod(sizes)).index_add(0, place, weights).reshape(sizes)
    if density:
        counts = counts / counts.sum()
        for dimension, limits in enumerate(edges):
            shape = [1] * len(sizes)
            shape[dimension] = sizes[dimension]
            counts = counts / limits.diff().reshape(shape)
    return counts
