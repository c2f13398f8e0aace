"""Rows of crates/aten/src/ops/nn/upsample.rs."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from tests.operators.samples import samples

test_samples = samples(
    "_upsample_bilinear2d_aa",
    "nn.functional.interpolate.area",
    "nn.functional.interpolate.bicubic",
    "nn.functional.interpolate.bilinear",
    "nn.functional.interpolate.linear",
    "nn.functional.interpolate.nearest",
    "nn.functional.interpolate.nearest-exact",
    "nn.functional.interpolate.trilinear",
    "nn.functional.upsample_bilinear",
    "nn.functional.upsample_nearest",
)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("mode", ["strict"], indirect=True)
def test_positions_between_two_pixels(device: torch.device, mode: str) -> None:
    """They are rounded as the product of single precision numbers is, with sizes as constants or as inputs."""
    for size in (6, 4, 9, 11, 6):
        numbers = torch.arange(float(size))
        on_device = numbers[None, None].to(device)
        for outputs in (37, 61, 82, 90):
            scale = torch.tensor(float(size)) / outputs
            expected = ((torch.arange(outputs) + 0.5) * scale).floor().clamp(max=size - 1)
            resized = functional.interpolate(on_device, size=outputs, mode="nearest-exact")
            torch.testing.assert_close(resized.cpu()[0, 0], expected)
