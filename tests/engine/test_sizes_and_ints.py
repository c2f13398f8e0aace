"""Ints that vary beside sizes that change: neither compiles a program for each value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engine.settling import check_that_it_settles

pytestmark = pytest.mark.usefixtures("changing_sizes")

# The largest come early: each capacity is a program. Then come the ints that have programs of their own.
SIZES = (61, 47, 57, 38, 53, 43, 59, 37, 51, 41, 56, 45, 50, 39, 48, 60, 46, 55, 62, 40, 58, 44, 49, 42, 54)
SETTLED = 19


def some(x: Tensor, among: int) -> int:
    """An int from 8 on that another size seldom has. A part from 0 on, or of few elements, has its own program."""
    return 8 + x.shape[0] * 7 % among


def window(x: Tensor) -> Tensor:
    start = some(x, 22)
    return x[start : start + 6] * 2


def rest(x: Tensor) -> Tensor:
    start = some(x, 23)
    return x.narrow(0, start, x.shape[0] - 2 * start if start < 15 else 7).cumsum(0)


def in_the_middle(x: Tensor) -> Tensor:
    """As an image is padded to a square."""
    added = 64 - x.shape[0]
    return F.pad(x, (0, 0, added // 2, added - added // 2)).tanh()


def to_a_size(x: Tensor) -> Tensor:
    """The gradient of the padding gets no padding of its own from the sum."""
    return F.pad(x, (0, 0, 0, 64 - x.shape[0])).view(4, 16, 4).square().mean(0)


def scattered(x: Tensor) -> Tensor:
    start = some(x, 19)
    return torch.select_scatter(torch.slice_scatter(x, x[:5] * 2, 0, start, start + 5), x[0].cos(), 0, some(x, 21))


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "one row": lambda x: x[some(x, 23)] * 2,
    "the last row": lambda x: x[x.shape[0] - 1] * 2,
    "window": window,
    "rest": rest,
    "roll": lambda x: x.roll((some(x, 23), some(x, 3)), (0, 1)),
    "rank": lambda x: x.kthvalue(some(x, 23), dim=0).values,
    "half": lambda x: x.kthvalue(x.shape[0] // 2, dim=0).values,
    "in the middle": in_the_middle,
    "to a size": to_a_size,
    "before": lambda x: F.pad(x, (0, 0, 64 - x.shape[0], 0)).cumsum(0),
    "scattered": scattered,
    "a part of the largest": lambda x: x.topk(x.shape[0] // 4, dim=0).values,
    "most of the smallest": lambda x: x.topk(int(0.8 * x.shape[0]), dim=0, largest=False).values,
    "rows with the largest": lambda x: x[x[:, 0].topk(x.shape[0] // 2).indices] * 2,
    "all in order": lambda x: x.topk(x.shape[0], dim=0).values,
    "at most": lambda x: x.double().topk(min(x.shape[0], 50), dim=0).values.float(),
}


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_programs_settle(program: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    seeds = torch.Generator().manual_seed(0)
    check_that_it_settles(program, device, (torch.randn(size, 4, generator=seeds) for size in SIZES), settled=SETTLED)
