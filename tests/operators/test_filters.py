"""Rows that use crates/aten/src/common/filters.rs: elements that are infinite or NaN."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import assert_same, check

F = nn.functional


def image(height: int = 5, width: int = 5) -> Tensor:
    """Numbers, and one element of each kind that is none, far from each other."""
    x = torch.arange(2.0 * height * width).reshape(1, 2, height, width)
    x[0, 0, 1, 1], x[0, 0, height - 1, width - 1], x[0, 1, 0, 0] = math.nan, math.inf, -math.inf
    return x


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "area"])
@pytest.mark.parametrize("size", [(3, 3), (7, 8), (5, 3), (9, 9)], ids=str)
def test_they_reach_the_same_results(device: torch.device, mode: str, size: tuple[int, int]) -> None:
    check(lambda d: F.interpolate(image().to(d), size, mode=mode), device)
    check(lambda d: F.adaptive_avg_pool2d(image().to(d), size), device)


@pytest.mark.parametrize("antialias", [False, True])
@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(3, 3), (7, 8), (5, 3), (9, 9)], ids=str)
def test_the_other_results_are_numbers(device: torch.device, mode: str, size: tuple[int, int], antialias: bool) -> None:
    """The CPU multiplies by weights of 0 too, which makes NaN of more results."""

    def run(d: torch.device) -> Tensor:
        return F.interpolate(image().to(d), size, mode=mode, antialias=antialias)

    expected, actual = run(torch.device("cpu")), run(device).cpu()
    torch.testing.assert_close(actual[expected.isfinite()], expected[expected.isfinite()])
    assert not actual.isfinite().all()
    infinite = expected.isinf() & ~actual.isfinite()
    assert_same(actual[infinite], expected[infinite])


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_repeated_and_skipped_pixels(device: torch.device, mode: str) -> None:
    """All factors of small sizes. Sizes of which float32 does not hold every position."""

    def run(d: torch.device) -> list[Tensor]:
        pixels = torch.arange(1.0, 13.0).to(d)
        small = [
            F.interpolate(pixels[None, None, :inputs], size=outputs, mode=mode).flatten()
            for inputs in range(1, 13)
            for outputs in {1, inputs, 2 * inputs, 3 * inputs, 7 * inputs, max(1, inputs // 2), max(1, inputs // 3)}
        ]
        large = F.interpolate(pixels[None, None, :3].byte(), size=3 * 2**24, mode=mode)[0, 0]
        return [torch.cat(small), large[:: 2**22], large[2**24 - 2 : 2**24 + 2], large[-3:]]

    check(run, device)


def test_signs_of_weights(device: torch.device) -> None:
    """An infinite element times a negative weight is infinite with the other sign; both signs make NaN."""

    def run(d: torch.device) -> list[Tensor]:
        one = torch.zeros(1, 1, 1, 12)
        one[..., 4] = math.inf
        both = one.clone()
        both[..., 5] = math.inf
        return [F.interpolate(x.to(d), (1, 9), mode="bicubic").squeeze() for x in (one, -one, both)]

    expected, actual = run(torch.device("cpu")), [result.cpu() for result in run(device)]
    for one, other in zip(actual, expected, strict=True):
        known = other.isfinite() | other.isinf()
        torch.testing.assert_close(one[known], other[known])


def test_gradients(device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        x = torch.ones(1, 2, 5, 5).to(d).requires_grad_()
        F.interpolate(x, (7, 8), mode="nearest").backward(image(7, 8).to(d))
        y = torch.ones(1, 2, 5, 5).to(d).requires_grad_()
        F.adaptive_avg_pool2d(y, (3, 3)).backward(image(3, 3).to(d))
        return [x.grad, y.grad]

    check(run, device)


def test_sizes_that_change(device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        return [F.interpolate(image(n, n + 2).to(d), scale_factor=1.3, mode="nearest") for n in (4, 5, 6, 7, 9, 8, 11)]

    check(run, device)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic", "area"])
@pytest.mark.parametrize("scale", [0.6, 1.3])
def test_gradients_of_sizes_that_change(device: torch.device, mode: str, scale: float) -> None:
    """The images are finite. What is behind their elements in memory is not."""

    def run(d: torch.device) -> list[Tensor]:
        results = []
        for n in (4, 5, 6, 7, 9, 8, 11):
            x = torch.linspace(-1, 1, 2 * n * (n + 2)).view(1, 2, n, n + 2).to(d).requires_grad_()
            y = F.interpolate(x, scale_factor=scale, mode=mode)
            size = y.numel()
            y.backward(torch.linspace(1, 3, size).view(y.shape).to(d))
            results.append(x.grad)
        return results

    check(run, device)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(device: torch.device, dtype: torch.dtype) -> None:
    check(lambda d: F.interpolate(image().to(d, dtype), (7, 8), mode="nearest"), device)
