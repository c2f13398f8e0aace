"""Rows of crates/aten/src/ops/nn/pool_adaptive.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.adaptive_avg_pool1d",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_avg_pool3d",
    "nn.functional.adaptive_max_pool1d",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.adaptive_max_pool3d",
)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_maxima_of_integers_are_refused(dims: int, device: torch.device) -> None:
    pool = getattr(torch.nn.functional, f"adaptive_max_pool{dims}d")
    check_refused(lambda device: pool(torch.ones(2, *[4] * (dims + 1), dtype=torch.int16, device=device), 2), device)


@pytest.mark.parametrize("kind", ["avg", "max"])
def test_outputs_of_size_0(kind: str, device: torch.device) -> None:
    """Also of inputs whose sizes change."""

    def run(device: torch.device) -> list[torch.Tensor]:
        pool = getattr(torch.nn.functional, f"adaptive_{kind}_pool2d")
        images = [torch.ones(1, 2, size, size).to(device) + 1 for size in (4, 5, 6, 7, 8, 9)]
        return [pool(image, output) for image in images for output in ((0, 3), (2, 0), (0, 0))]

    check(run, device)


@pytest.mark.parametrize("inputs", range(1, 13))
def test_windows_of_different_lengths(inputs: int, device: torch.device) -> None:
    def run(device: torch.device) -> list[torch.Tensor]:
        image = torch.linspace(-1, 1, inputs).square().view(1, 1, inputs).to(device)
        return [torch.nn.functional.adaptive_max_pool1d(image, outputs) for outputs in range(1, 16)]

    check(run, device)


def test_more_outputs_than_memory(device: torch.device) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        torch.nn.functional.adaptive_max_pool1d(torch.ones(1, 1, 7, device=device), 2**40).sum().item()
