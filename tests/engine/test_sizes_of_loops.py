"""Functions whose programs have loops over elements, and hinge losses, at sizes that change: they settle."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engine.settling import SIZES, check_that_it_settles

pytestmark = pytest.mark.usefixtures("changing_sizes")


def integers(x: Tensor) -> Tensor:
    return (x.detach() * 20).long()


def classes(x: Tensor) -> Tensor:
    return (torch.arange(x.shape[0]) % 4).to(x.device)


def lists_of_classes(x: Tensor) -> Tensor:
    return torch.stack([classes(x), (classes(x) + 1) % 4, classes(x) - 1, classes(x) - 3], 1).clamp(min=-1)


PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "gcd": lambda x: x * torch.gcd(integers(x), integers(x).flip(1)),
    "lcm": lambda x: x * torch.lcm(integers(x), torch.tensor(12, device=x.device)),
    "power": lambda x: x * (integers(x) ** torch.tensor([0, 1, 2, 3], device=x.device)),
    "igamma": lambda x: x * torch.igamma(x.detach().abs() + 0.1, x[0].detach().abs()),
    "igammac": lambda x: x * torch.igammac(x[:, :1].detach().abs() + 0.1, x.detach().abs()),
    "multi_margin_loss": lambda x: F.multi_margin_loss(x, classes(x), reduction="none"),
    "mean of multi_margin_loss": lambda x: F.multi_margin_loss(x, classes(x), p=2),
    "multilabel_margin_loss": lambda x: F.multilabel_margin_loss(x, lists_of_classes(x)),
}


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_loops_settle(name: str, device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(PROGRAMS[name], device, (torch.randn(size, 4) for size in SIZES))
