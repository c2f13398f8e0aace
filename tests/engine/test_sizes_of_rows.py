"""Rows of a changing length joined with new ones, repeated, turned around and divided into windows: after a few sizes
nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engine.settling import SIZES, check_that_it_settles

pytestmark = pytest.mark.usefixtures("changing_sizes")

WIDTH = 8


def filled_up(x: Tensor) -> Tensor:
    """As a batch is filled up to a size by joining zeros."""
    rows = torch.tanh(x)
    return torch.cat([rows, rows.new_zeros(3, 64 - x.shape[1], WIDTH)], 1).cumsum(1)


def longer(x: Tensor) -> Tensor:
    return torch.cat([torch.tanh(x), torch.ones(3, x.shape[1] + 1, WIDTH, device=x.device)], 1).cumsum(1)


def turned_around(x: Tensor) -> Tensor:
    order = torch.arange(x.shape[1] - 1, -1, -1, device=x.device)
    return torch.cat([x[:, order], x[:, torch.arange(3, x.shape[1], 2, device=x.device)]], 1).cumsum(1)


def repeated(x: Tensor) -> Tensor:
    """A row of the sequence and a constant one, as often as there are others, and two rows that no gradient goes to."""
    one, two = x[:, :1] * 2, x[:, :2].detach()
    constant = torch.arange(WIDTH, device=x.device).repeat(x.shape[1], 1)
    return torch.cat([one.repeat(1, x.shape[1], 1) * x + constant, two.repeat(1, x.shape[1], 1)], 1).cumsum(1)


def pairs(x: Tensor) -> Tensor:
    rows, length = x[0], x.shape[1]
    left, right = rows[:, None].repeat(1, length, 1), rows[None].repeat(length, 1, 1)
    return torch.cat([left, right], -1).tanh().sum(1)


def different_pairs(x: Tensor) -> Tensor:
    """The positions of as many pairs as the length decides."""
    length = x.shape[1]
    first, second = torch.triu_indices(length, length, 1, device=x.device)
    below = torch.tril_indices(length + 3, length, -2, device=x.device)
    return (x[0, first] * x[0, second]).cumsum(0) + below.sum() * 1e-4


def two_parts(x: Tensor) -> Tensor:
    """Parts that are as many as before, of a row that is one element longer for odd lengths."""
    half = x.shape[1] // 2
    return torch.tanh(x.detach())[:, : 2 * half].view(3, 2, half, WIDTH).cumsum(2) * x.sum()


def local(x: Tensor) -> Tensor:
    """Attention in windows, which the rows are filled up for and cut to."""
    batch, length, width = x.shape
    windows = F.pad(torch.tanh(x), (0, 0, 0, -length % 4)).view(batch, -1, 4, width)
    seen = F.scaled_dot_product_attention(windows, windows, windows)
    return seen.reshape(batch, -1, width)[:, :length] * 2


PROGRAMS = (filled_up, longer, turned_around, repeated, pairs, different_pairs, two_parts, local)

# Two sizes for each of the first lengths: those of the rows and of what they are filled up to.
LENGTHS = (*SIZES, 27, 20, 24, 22, 29, 17, 28)


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_rows_settle(program: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(program, device, (torch.randn(3, length, WIDTH) for length in LENGTHS), settled=8)


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_patches_behind_a_class_token(device: torch.device, mode: str) -> None:
    """The gradient of the patches is a part of a row, in two dimensions."""
    torch.tpu.set_eager_mode(mode)
    constants = [torch.randn(5, 3, 4, 4) * 0.2, torch.randn(1, 1, 5)]
    on_device = [constant.to(device) for constant in constants]

    def tokens(images: Tensor) -> Tensor:
        kernel, token = constants if images.device.type == "cpu" else on_device
        patches = F.conv2d(images, kernel, stride=4).flatten(2).mT
        return torch.cat([token.repeat(len(images), 1, 1), patches], 1).cumsum(1).tanh()

    check_that_it_settles(tokens, device, (torch.randn(batch, 3, 12, 12) for batch in SIZES))
