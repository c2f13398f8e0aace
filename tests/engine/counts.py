"""Sizes that the data decide, beside sizes that change.

No other test has made these calls in its process: a call that was made before has a program of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.helpers import assert_same, programs_made

LENGTHS = (12, 19, 30, 17, 26, 23, 21, 19, 14)


def routed(x: Tensor) -> Tensor:
    """Each row goes to one of two experts."""
    y = torch.zeros_like(x)
    for number in range(2):
        (rows,) = (x[:, 0].gt(0).long() == number).nonzero(as_tuple=True)
        y = y.index_add(0, rows, x[rows] * (number + 1.0))
    return y


def experts(x: Tensor) -> list[Tensor]:
    """Each row goes to one of four experts. Some get as many rows as others by chance."""
    chosen = (torch.arange(x.shape[0]) * 7 % 5 % 4).to(x.device)
    x = x.repeat(1, 9).detach().requires_grad_()
    y = torch.zeros_like(x)
    for number in range(4):
        (rows,) = (chosen == number).nonzero(as_tuple=True)
        y = y.index_add(0, rows, x[rows].tanh() * (number + 1.0))
    return [y.detach(), *torch.autograd.grad(y.square().sum(), x)]


def segments(x: Tensor) -> list[Tensor]:
    """Means of the rows of each segment, in new tensors with a row for each segment."""
    values, places, counts = (x[:, 0] * 4).long().unique(return_inverse=True, return_counts=True)
    sums = torch.zeros(len(values), 4, device=x.device).index_add_(0, places, x)
    most = x.new_full((len(values), 4), -9.0).scatter_reduce(0, places[:, None].expand_as(x), x, "amax")
    return [sums / counts[:, None], most]


def halves(x: Tensor) -> Tensor:
    """Integers, two rows for each row. The length is merged with a 2 before it."""
    return (x * 1.5).long().view(x.shape[0], 2, 2).transpose(0, 1).flatten(0, 1)


COUNTS: dict[str, Callable[[Tensor], object]] = {
    "nonzero": lambda x: (x > 0).nonzero() * 2,
    "columns": lambda x: [column + 1 for column in (x > 0).nonzero(as_tuple=True)],
    "where": lambda x: torch.where(x.flatten() > 0)[0] * 3,
    "merged": lambda x: (x.view(x.shape[0], 2, 2).transpose(0, 1).flatten(0, 1) > 0).nonzero() + 1,
    "masked_select": lambda x: x.masked_select(x > 0) * 2,
    "selected_rows": lambda x: x.masked_select(x[:, :1] > 0).view(-1, 4).amax(0),
    "unique": lambda x: [part * 2 for part in (x * 2).long().unique(return_inverse=True, return_counts=True)],
    "unique of merged": lambda x: list(halves(x).unique(return_inverse=True, return_counts=True)),
    "unique rows": lambda x: list((x[:, :2] * 1.5).long().unique(dim=0, return_inverse=True, return_counts=True)),
    "unique columns": lambda x: list((x[:, :3] > 0.8).unique(dim=1, return_inverse=True, return_counts=True)),
    "unique_consecutive": lambda x: list(torch.unique_consecutive((x[:, 0] * 1.5).long(), True, True)),
    "unique_consecutive of rows": lambda x: list(torch.unique_consecutive((x > 0.8)[:, :2], True, True, dim=0)),
    "unique_consecutive of merged": lambda x: list(torch.unique_consecutive(halves(x), True, True)),
    "routed": routed,
    "experts": experts,
    "segments": segments,
}


def check_counts(name: str, device: torch.device, mode: str) -> None:
    """Results equal the CPU's. After the fourth length no program is made, and a second visit makes none."""
    torch.manual_seed(0)
    made: list[int] = []
    for length in LENGTHS:
        x = torch.randn(length, 4)
        on_device = x.to(device)
        before = programs_made()
        assert_same(to_host(COUNTS[name](on_device)), COUNTS[name](x))
        made.append(programs_made() - before)
    # In Fused the chunks of the first lengths end elsewhere.
    assert sum(made[4:]) <= (1 if mode == "fused" else 0), (name, made)


def check_first_counts(device: torch.device) -> None:
    """Masks of one size choose other numbers of elements. From the second number on no program is made."""
    x, made = torch.randn(252, 8), []
    on_device = x.to(device)
    for number in (127, 125, 135, 64, 30, 200):
        mask = torch.randperm(252) < number
        before = programs_made()
        result = (on_device[mask.to(device)].tanh() * 2).sum(0).cpu()
        torch.testing.assert_close(result, (x[mask].tanh() * 2).sum(0), rtol=1e-4, atol=1e-4)
        made.append(programs_made() - before)
    assert sum(made[1:]) == 0, made


def check_segments(device: torch.device) -> None:
    """New tensors get a number of rows that the data decide, while all arguments keep their sizes."""
    x, made = torch.randn(253, 4), []
    on_device = x.to(device)
    for number in (37, 13, 23, 11, 30, 18, 26):
        groups = torch.randint(number, (253,))
        before = programs_made()
        results = []
        for rows, ids in ((x, groups), (on_device, groups.to(device))):
            values, places = ids.unique(return_inverse=True)
            results.append(torch.zeros(len(values), 4, device=rows.device).index_add_(0, places, rows).sum(0))
        torch.testing.assert_close(results[1].cpu(), results[0], rtol=1e-4, atol=1e-4)
        made.append(programs_made() - before)
    assert sum(made[3:]) == 0, made


def to_host(value: object) -> object:
    if isinstance(value, Tensor):
        return value.cpu()
    assert isinstance(value, list)
    return [each.cpu() for each in value]


if __name__ == "__main__":
    torch.tpu.set_eager_mode(sys.argv[2])
    set_sizes("dynamic")
    if sys.argv[1] == "first":
        check_first_counts(torch.device("tpu"))
    elif sys.argv[1] == "rows":
        check_segments(torch.device("tpu"))
    else:
        check_counts(sys.argv[1], torch.device("tpu"), sys.argv[2])
