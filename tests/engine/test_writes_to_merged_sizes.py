"""Writes to parts of tensors in which a known size and a changing one are one dimension."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same

pytestmark = pytest.mark.usefixtures("changing_sizes")


def stacked(written: Tensor, x: Tensor) -> None:
    torch.stack([x[:, 0], x[:, 1], x[:, 2]], out=written.view(3, -1))


def stacked_constants(written: Tensor, x: Tensor) -> None:
    ones = [torch.full(x.shape[:1], i + 1.0, device=x.device) for i in range(3)]
    torch.stack(ones, out=written.view(3, -1))


def joined(written: Tensor, x: Tensor) -> None:
    torch.cat([x[:, 0], x[:, 1], x[:, 2]], out=written)


def counted(written: Tensor, x: Tensor) -> None:
    torch.arange(3 * x.shape[0], out=written)


def placed(written: Tensor, x: Tensor) -> None:
    places = torch.arange(3 * x.shape[0] - 1, -1, -1, device=x.device)
    written.put_(places, x.reshape(-1))


def summed(written: Tensor, x: Tensor) -> None:
    torch.cumsum(x.reshape(-1), 0, out=written)


@pytest.mark.parametrize(
    ("shape", "part"),
    [(lambda n: (3, n, 2), lambda x: x[..., 0]), (lambda n: (2, 3, n), lambda x: x[1])],
    ids=["gaps", "part"],
)
@pytest.mark.parametrize("write", [stacked, stacked_constants, joined, counted, placed, summed])
def test_writes_to_parts_with_merged_sizes(
    write: Callable[[Tensor, Tensor], None],
    shape: Callable[[int], tuple[int, ...]],
    part: Callable[[Tensor], Tensor],
    device: torch.device,
    mode: str,
) -> None:
    """The written tensor has padding after each third. The elements around it stay."""
    for length in (5, 9, 13, 7, 11, 12):
        x, whole = torch.randn(length, 3), torch.randn(shape(length))
        on_device = whole.to(device)
        write(part(whole).view(-1), x)
        write(part(on_device).view(-1), x.to(device))
        assert_same(on_device, whole)
