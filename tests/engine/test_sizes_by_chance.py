"""Sizes that stay, and equal by chance one that changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

# The numbers of boxes of a picture. Some equal a size that stays.
NUMBERS = (3, 5, 2, 6, 4, 7, 3, 4, 5, 6, 3, 2, 4)
SETTLED = 6


def copies_of_the_host() -> int:
    stats = torch.tpu.op_stats()
    return int(stats["padded"]) + int(stats["unpadded"])


def check_that_it_settles(step: Callable[..., Tensor], stays: tuple[Tensor, ...], device: torch.device) -> None:
    """`step` takes boxes, whose number changes, and tensors whose sizes stay."""
    on_device = [x.to(device) for x in stays]
    for count, number in enumerate(NUMBERS):
        boxes = torch.randn(number, 4)
        before = programs_made(), copies_of_the_host()
        actual = step(boxes.to(device), *on_device).cpu()
        torch.testing.assert_close(actual, step(boxes, *stays), rtol=1e-4, atol=1e-4)
        if count >= SETTLED:
            assert (programs_made(), copies_of_the_host()) == before, f"at {number} boxes"


@pytest.mark.parametrize("mode", ["strict", "fused"], indirect=True)
def test_new_tensors_keep_their_sizes(device: torch.device, mode: str) -> None:
    """A batch of pictures has three channels, and a picture may have three boxes. The batch gets no padding."""

    def step(boxes: Tensor, picture: Tensor, weight: Tensor) -> Tensor:
        boxes = boxes * 2
        batch = picture.new_full((2, 3, 8, 12), 0.5)
        batch[0, :, :, :10].copy_(picture)
        return torch.nn.functional.conv2d(batch, weight).sum() + boxes.sum()

    check_that_it_settles(step, (torch.randn(3, 8, 10), torch.randn(4, 3, 3, 3)), device)


@pytest.mark.parametrize("mode", ["strict", "fused"], indirect=True)
def test_zeros_of_a_gradient_keep_their_sizes(device: torch.device, mode: str) -> None:
    """The gradient of some rows is written into zeros with four columns. A picture may have four boxes."""

    def step(boxes: Tensor, anchors: Tensor, chosen: Tensor) -> Tensor:
        x = anchors.detach().requires_grad_()
        (gradient,) = torch.autograd.grad((x.sin()[chosen].sum() * (boxes * 2).sum()), x)
        return gradient

    check_that_it_settles(step, (torch.randn(40, 4), torch.arange(8)), device)


@pytest.mark.parametrize("mode", ["strict", "fused"], indirect=True)
def test_as_many_rows_as_columns(device: torch.device, mode: str) -> None:
    """The first batch has as many rows as features. The weights get no padding."""
    weight = torch.randn(8, 20)
    on_device = weight.to(device).requires_grad_()
    weight.requires_grad_()

    def step(x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        hidden = (x @ weight).tanh()
        return hidden.detach(), torch.autograd.grad(hidden.square().sum(), weight)[0]

    for rows in (20, 20, 17, 13, 20):
        x = torch.randn(rows, 8)
        given = x.to(device)
        torch.tpu.mark_dynamic(given, 0, max=64)
        before = copies_of_the_host()
        results = step(given, on_device)
        torch.tpu.synchronize()
        assert copies_of_the_host() == before, f"at {rows} rows"
        for actual, expected in zip(results, step(x, weight), strict=True):
            torch.testing.assert_close(actual.cpu(), expected, rtol=1e-3, atol=1e-3)
