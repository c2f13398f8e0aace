"""Joins of many tensors whose number changes.

No other test has joined as many in its process: a call that was made before has a program of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.helpers import programs_made

NUMBERS = [6, 9, 7, 12, 11, 14, 13]

JOINS: dict[str, Callable[[list[Tensor]], Tensor]] = {
    "stack": torch.stack,
    "cat": lambda parts: torch.cat(parts).view(-1, 4, 3),
    "inner": lambda parts: torch.stack(parts, 1).transpose(0, 1),
    "scalars": lambda parts: torch.stack([part.sum() for part in parts]).view(-1, 1, 1),
}


def computed(y: Tensor) -> tuple[Tensor, ...]:
    return (
        (y * 2).sum(0),
        y.transpose(0, 1).contiguous() + 1,
        y.flatten(0, 1).softmax(0),
        y.amax(),
        y[-1] * 1,
        y[1:].prod(0),
    )


def check_joins(join: Callable[[list[Tensor]], Tensor], device: torch.device) -> None:
    """Results equal the CPU's. From the fourth number on, each new one makes the program of `cat` and no other."""
    made = []
    for number in NUMBERS:
        parts = [torch.rand(4, 3) + 0.5 for _ in range(number)]
        on_device = [part.to(device) for part in parts]
        before = programs_made()
        for actual, expected in zip(computed(join(on_device)), computed(join(parts)), strict=True):
            torch.testing.assert_close(actual.cpu(), expected)
        made.append(programs_made() - before)
    assert max(made[3:]) <= 1, made
    read = torch.tpu.op_stats()["unpadded"]
    torch.testing.assert_close(join(on_device).cpu(), join(parts))
    assert torch.tpu.op_stats()["unpadded"] > read, "the result has no padding"


if __name__ == "__main__":
    torch.tpu.set_eager_mode("strict")
    set_sizes("dynamic")
    check_joins(JOINS[sys.argv[1]], torch.device("tpu"))
