"""Rows of crates/aten/src/ops/nn/regions.rs: torchvision's pooling of regions of interest."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engine.settling import SETTLED, SIZES
from tests.helpers import programs_made
from tests.operators.test_detection import random_boxes

# `make test` installs it. torchtpu does not need it.
torchvision = pytest.importorskip("torchvision", reason="torchvision is not installed: pip install torchvision")
ops = torchvision.ops


def random_regions(scale: float) -> Tensor:
    """Some reach beyond the features, some lie outside, some are smaller than a bin, and some end near a half."""
    others = torch.tensor([[-5.0, -3.0, 40.0, 50.0], [2.0, 2.0, 2.1, 2.1], [90.0, 90.0, 99.0, 99.0]])
    halves = torch.tensor([[0.49999997, 2.5, 5.5, 6.4999995], [-0.5, -0.49999997, 3.5, 4.5]]) / scale
    boxes = torch.cat([random_boxes(6, 12 / scale), others, halves])
    return torch.cat([torch.randint(0, 2, (len(boxes), 1)).float(), boxes], 1)


@pytest.mark.parametrize("aligned", [False, True])
@pytest.mark.parametrize("sampling", [-1, 1, 2, 3])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_roi_align(scale: float, sampling: int, aligned: bool, device: torch.device) -> None:
    """Some regions reach beyond the features, and some are smaller than a bin."""
    features, grad = torch.randn(2, 3, 9, 13), torch.randn(8, 3, 4, 5)
    boxes = torch.cat([random_boxes(6, 12 / scale), torch.tensor([[-5.0, -3.0, 40.0, 50.0], [2.0, 2.0, 2.1, 2.1]])])
    regions = torch.cat([torch.randint(0, 2, (8, 1)).float(), boxes], 1)
    results = []
    for place in ("cpu", device):
        x = features.to(place).detach().clone().requires_grad_()
        pooled = ops.roi_align(x, regions.to(place), (4, 5), scale, sampling, aligned)
        pooled.backward(grad.to(place))
        results.append((pooled.detach().cpu(), x.grad.cpu()))  # type: ignore[union-attr]
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["strict", "fused"], indirect=True)
@pytest.mark.usefixtures("changing_sizes")
def test_the_number_of_regions_changes(device: torch.device, mode: str) -> None:
    """A detector proposes another number of regions for each batch. After a few, nothing is compiled."""
    features = torch.randn(2, 3, 20, 24)

    def pool(place: torch.device | str, regions: Tensor) -> tuple[Tensor, Tensor]:
        x = features.to(place).detach().requires_grad_()
        pooled = ops.roi_align(x, regions.to(place), (3, 4), 0.9, 2)
        (pooled * pooled.detach().cos()).sum().backward()
        return pooled.detach().cpu(), x.grad.cpu()  # type: ignore[union-attr]

    for number, count in enumerate(SIZES):
        regions = torch.cat([torch.randint(0, 2, (count, 1)).float(), random_boxes(count, 20)], 1)
        before = programs_made()
        results = pool(device, regions)
        made = programs_made() - before
        for actual, expected in zip(results, pool("cpu", regions), strict=True):
            torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)
        assert number < SETTLED or not made, f"{made} programs for {count} regions"


def test_regions_outside_of_the_features(device: torch.device) -> None:
    """They are zero, and read nothing, whatever is there."""
    features = torch.full((1, 2, 5, 6), torch.inf, device=device)
    regions = torch.tensor([[0.0, 50.0, 50.0, 60.0, 60.0], [0.0, -40.0, 1.0, -30.0, 4.0]], device=device)
    assert ops.roi_align(features, regions, 3, sampling_ratio=2).eq(0).all()


def test_roi_align_of_no_regions(device: torch.device) -> None:
    pooled = ops.roi_align(torch.randn(1, 2, 5, 5, device=device), torch.empty(0, 5, device=device), 3)
    assert pooled.cpu().shape == (0, 2, 3, 3)


POOLS: dict[str, Callable[[Tensor, Tensor, float], tuple[Tensor, Tensor]]] = {
    "roi_pool": lambda x, regions, scale: torch.ops.torchvision.roi_pool(x, regions, scale, 4, 3),
    "ps_roi_pool": lambda x, regions, scale: torch.ops.torchvision.ps_roi_pool(x, regions, scale, 2, 3),
    "ps_roi_align": lambda x, regions, scale: torch.ops.torchvision.ps_roi_align(x, regions, scale, 2, 3, 2),
    "ps_roi_align, counted": lambda x, regions, scale: torch.ops.torchvision.ps_roi_align(x, regions, scale, 2, 3, -1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1.0, 0.25])
@pytest.mark.parametrize("name", POOLS)
def test_pools(name: str, scale: float, dtype: torch.dtype, device: torch.device) -> None:
    """The gradient of ps_roi_pool includes positions that its result leaves out, as on the CPU and on CUDA."""
    features, regions = torch.randn(2, 12, 9, 13, dtype=dtype), random_regions(scale).to(dtype)
    results = []
    for place in ("cpu", device):
        x = features.to(place).detach().clone().requires_grad_()
        pooled, chosen = POOLS[name](x, regions.to(place), scale)
        weights = torch.linspace(-1, 1, pooled.numel(), dtype=dtype).view(pooled.shape)
        pooled.backward(weights.to(place))
        results.append((pooled.detach().cpu(), chosen.cpu(), x.grad.cpu()))  # type: ignore[union-attr]
    for expected, actual in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("length", [3.0, 5.0, 6.0, 7.0, 10.0, 11.0, 12.0, 13.0])
def test_bins_of_whole_length(length: float, device: torch.device) -> None:
    """A rounded reciprocal of the number of bins would give a bin one sample more."""
    features, regions = torch.randn(1, 2, 15, 15), torch.tensor([[0.0, 0.0, 0.0, length, length]])
    for bins in (3, 5, 7, 11):
        expected = ops.roi_align(features, regions, bins), ops.roi_pool(features, regions, bins)
        given = features.to(device), regions.to(device)
        actual = ops.roi_align(*given, bins), ops.roi_pool(*given, bins)
        torch.testing.assert_close([each.cpu() for each in actual], list(expected), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", POOLS)
def test_pools_of_no_regions(name: str, device: torch.device) -> None:
    pooled, chosen = POOLS[name](torch.randn(1, 12, 5, 5, device=device), torch.empty(0, 5, device=device), 1.0)
    assert pooled.shape[0] == 0
    assert pooled.cpu().shape == chosen.cpu().shape


def test_bins_need_channels(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="input channels must be a multiple of pooling height [*] pooling width"):
        ops.ps_roi_pool(torch.randn(1, 5, 5, 5, device=device), torch.zeros(1, 5, device=device), 2)
