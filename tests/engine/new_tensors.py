"""New tensors of changing sizes, in a process in which no other test has made tensors of these sizes: a call that was
made before has a program of its own."""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.engine.draws import LENGTHS
from tests.helpers import assert_same, programs_made

FUNCTIONS: dict[str, Callable[[torch.device, int], Tensor]] = {
    "zeros": lambda device, n: torch.zeros(n, 19, device=device) + 1,
    "ones": lambda device, n: torch.ones(2, n, device=device).sum(1),
    "full": lambda device, n: torch.full((n, 600), 7.0, device=device).mean(0),
    "arange": lambda device, n: torch.arange(n, device=device) * 2,
    "start": lambda device, n: torch.arange(3, n, device=device).sum(),
    "empty": lambda device, n: torch.empty(n, 19, device=device).fill_(2) - 1,
    "square": lambda device, n: torch.zeros(n, n, device=device).softmax(1),
}


def check() -> None:
    """The functions' results equal the CPU's, and after the third length they make no program."""
    for name, function in FUNCTIONS.items():
        made = []
        for length in LENGTHS:
            before = programs_made()
            assert_same(function(torch.device("tpu"), length), function(torch.device("cpu"), length))
            made.append(programs_made() - before)
        assert not any(made[3:]), (name, made)


if __name__ == "__main__":
    torch.tpu.set_eager_mode(sys.argv[1])
    set_sizes("all")
    check()
