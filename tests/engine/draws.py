"""Random numbers of changing sizes. The program saves them to a file, with the numbers of programs.

No other test has drawn as many in its process: a call that was made before has a program of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.helpers import programs_made

LENGTHS = (5, 9, 13, 7, 11, 12, 6)

DRAWS: dict[str, Callable[[torch.device, int], Tensor]] = {
    "rand": lambda device, n: torch.rand(n, 3, device=device),
    "inner": lambda device, n: torch.rand(3, n, 2, device=device),
    "float64": lambda device, n: torch.rand(3, n, device=device, dtype=torch.float64),
    "bfloat16": lambda device, n: torch.rand(3, n, device=device, dtype=torch.bfloat16),
    "randn": lambda device, n: torch.randn(n, n, device=device),
    "randint": lambda device, n: torch.randint(5, (2, n), device=device),
    "long": lambda device, n: torch.randint(1 << 40, (2, n), device=device),
    "normal_": lambda device, n: torch.empty(2, n, device=device).normal_(),
    "uniform_": lambda device, n: torch.empty(n, 2, device=device).uniform_(1, 3),
    "dropout": lambda device, n: torch.dropout(torch.ones(2, n, 3, device=device) * 2, 0.4, True),
    "randperm": lambda device, n: torch.randperm(n, device=device),
    "randperm of many": lambda device, n: torch.randperm(501 * n, device=device, dtype=torch.int32),
    "merged": lambda device, n: torch.dropout((torch.ones(2, n, 3, device=device) * 2).flatten(0, 1), 0.4, True),
    "exponential_": lambda device, n: torch.empty(3, n, device=device).exponential_(2.0),
    "cauchy_": lambda device, n: torch.empty(n, 2, device=device).cauchy_(),
    "geometric_": lambda device, n: torch.empty(3, n, device=device, dtype=torch.int64).geometric_(0.3),
    "log_normal_": lambda device, n: torch.empty(n, device=device, dtype=torch.float64).log_normal_(),
    "normal": lambda device, n: torch.normal(torch.ones(n, 3, device=device) * 2, torch.full((3,), 0.5, device=device)),
    "multinomial": lambda device, n: torch.multinomial(torch.ones(n, 5, device=device) * 2, 1),
    "multinomial again": lambda device, n: torch.multinomial(torch.ones(n, 5, device=device) * 2, 4, replacement=True),
    "multinomial once": lambda device, n: torch.multinomial(torch.ones(n, 5, device=device) * 2, 3),
    "categories": lambda device, n: torch.multinomial(torch.ones(2, n, device=device) * 2, 1),
    "categories again": lambda device, n: torch.multinomial(torch.ones(n, device=device) * 2, 4, replacement=True),
    "categories once": lambda device, n: torch.multinomial(torch.ones(n, device=device).cumsum(0), 3),
    "rrelu": lambda device, n: torch.rrelu(-torch.ones(n, 3, device=device), training=True),
    "like": lambda device, n: torch.rand_like(torch.ones(3, n, device=device) * 2),
    "bernoulli": lambda device, n: torch.bernoulli(torch.full((3, n), 0.4, device=device)),
}


def draw_all(device: torch.device) -> tuple[dict[str, list[Tensor]], dict[str, list[int]]]:
    """The numbers for each length, then four more; and the programs made for each length."""
    drawn: dict[str, list[Tensor]] = {}
    made: dict[str, list[int]] = {}
    for name, draw in DRAWS.items():
        torch.manual_seed(0)
        drawn[name], made[name] = [], []
        for length in LENGTHS:
            before = programs_made()
            drawn[name].append(draw(device, length).cpu())
            made[name].append(programs_made() - before)
        drawn[name].append(torch.rand(4, device=device).cpu())
    return drawn, made


def main() -> None:
    """Saves what is drawn in the file that the command line names, with the sizes that it names."""
    file, sizes = sys.argv[1:]
    set_sizes(sizes)
    torch.save(draw_all(torch.device("tpu")), file)


if __name__ == "__main__":
    main()
