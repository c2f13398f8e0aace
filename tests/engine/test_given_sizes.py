"""Results of sizes that a line gives, of tensors that do not change: from the sixth size on there is one program."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

# The largest comes early: each capacity is a program.
SIZES = (30, 23, 28, 19, 26, 21, 29, 18, 25, 24, 27, 22, 20)
# Two results of the first six may have the same size in one dimension.
SETTLED = 7

IMAGES = torch.randn(2, 3, 16, 20)
NUMBERS = torch.randn(40, 3)


def squares(x: Tensor) -> Tensor:
    """What follows has programs for all sizes too."""
    return (x.tanh() + 1).square().sum(-1)


PROGRAMS: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "interpolate": lambda x, _, n: squares(F.interpolate(x, size=(n, n + 3), mode="bilinear")),
    "scale": lambda x, _, n: squares(F.interpolate(x, scale_factor=n / 26.5, mode="bicubic")),
    "scales": lambda x, _, n: squares(F.interpolate(x, scale_factor=(n / 13.3, n / 13), mode="nearest-exact")),
    "pool": lambda x, _, n: squares(F.adaptive_avg_pool2d(x, n)),
    "pad": lambda x, _, n: squares(F.pad(x, (0, 0, 1 + n % 7, n))),
    "topk": lambda _, x, n: squares(x.topk(n, dim=0).values),
    "repeat": lambda _, x, n: squares(x[:1].repeat(n, 1)),
    "arange": lambda _, x, n: squares(torch.arange(n, device=x.device).float()[:, None] * 0.1),
    "randint": lambda _, x, n: squares(torch.randint(3, 4, (n, 2), device=x.device).float()),
}


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_given_sizes(name: str, device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    images, numbers, program = IMAGES.to(device), NUMBERS.to(device), PROGRAMS[name]
    for place, size in enumerate(SIZES):
        before = programs_made()
        actual = program(images, numbers, size).cpu()
        made = programs_made() - before
        torch.testing.assert_close(actual, program(IMAGES, NUMBERS, size), rtol=1e-4, atol=1e-4)
        assert place < SETTLED or not made, f"{made} programs for {size}"


def test_a_pyramid_stays_exact(device: torch.device) -> None:
    """Five sizes, as a model computes them in each step, have programs of their own."""
    images, before = IMAGES.to(device), torch.tpu.op_stats()
    for _ in range(4):
        levels = [squares(F.interpolate(images, size=(size, size))) for size in (4, 6, 9, 12, 18)]
        for level, size in zip(levels, (4, 6, 9, 12, 18), strict=True):
            torch.testing.assert_close(level.cpu(), squares(F.interpolate(IMAGES, size=(size, size))))
    after = torch.tpu.op_stats()
    assert [after[name] - before[name] for name in ("padded", "unpadded")] == [0, 0]
