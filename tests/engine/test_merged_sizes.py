"""New tensors whose size is a product of sizes, one of which changes: batch and length in one dimension."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

LENGTHS = (5, 9, 13, 7, 11, 12)


def zeros_like(x: Tensor) -> Tensor:
    rows = torch.arange(0, 10, 2, device=x.device)
    return torch.zeros_like(x).index_add(0, rows, x[rows] * 2) + x


def scattered(x: Tensor) -> Tensor:
    places = (x[:, :2] > 0).long() + torch.tensor([0, 2], device=x.device)
    return torch.zeros(x.shape, device=x.device).scatter_(1, places, x[:, :2])


def put(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[torch.tensor([3, 0], device=x.device)] = torch.ones(2, x.shape[1], device=x.device)
    return y.view(3, -1, x.shape[1]) + 1


# No other test has made tensors of these widths: a call that was made before has a program of its own.
@pytest.mark.parametrize(
    ("function", "mode", "width"),
    [
        (zeros_like, "strict", 47),
        (zeros_like, "fused", 49),
        (scattered, "strict", 51),
        (scattered, "fused", 53),
        (put, "strict", 55),
        (put, "fused", 57),
    ],
)
def test_new_tensors(function: Callable[[Tensor], Tensor], mode: str, width: int, device: torch.device) -> None:
    """After the third length no program is made, and results are exact."""
    torch.tpu.set_eager_mode(mode)
    made = []
    for length in LENGTHS:
        x = torch.randn(3, length, width)
        on_device = x.to(device)
        before = programs_made()
        assert_same(function(on_device.flatten(0, 1)), function(x.flatten(0, 1)))
        made.append(programs_made() - before)
    assert not any(made[3:]), made


def test_a_new_tensor_of_this_size_by_chance_is_exact(device: torch.device) -> None:
    """A line that makes one size is no line of changing sizes."""
    for length in LENGTHS:
        x = torch.randn(3, length, 5).to(device) + 1
    weight = torch.zeros(x.shape[0] * x.shape[1], 59, device=device)
    weight.add_(1)
    unpadded = torch.tpu.op_stats()["unpadded"]
    assert_same(weight, torch.ones(36, 59))
    assert torch.tpu.op_stats()["unpadded"] == unpadded
