"""The coordinates of specified elements as single numbers, which can be sorted and compared."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def flat(coordinates: Tensor, sizes: Sequence[int]) -> Tensor:
    """The row-major positions of coordinates, given by column."""
    positions = torch.zeros(coordinates.shape[1], dtype=torch.int64, device=coordinates.device)
    for row, size in zip(coordinates, sizes, strict=True):
        positions = positions * size + row
    return positions


def unflat(positions: Tensor, sizes: Sequence[int]) -> Tensor:
    """The coordinates, by column, of row-major positions."""
    rows = []
    for size in reversed(sizes):
        rows.append(positions % max(size, 1))
        positions = positions // max(size, 1)
    return torch.stack(rows[::-1]) if rows else positions.new_zeros((0, len(positions)))


def spread(flags: Tensor, values: Tensor) -> Tensor:
    """A number for each row of values, shaped to broadcast over the row."""
    return flags.view(-1, *[1] * (values.dim() - 1))


def sum_rows(values: Tensor, groups: Tensor, count: int) -> Tensor:
    """The sum of the rows of each group."""
    if values.dtype == torch.bool:
        return sum_rows(values.to(torch.int32), groups, count).bool()
    return values.new_zeros((count, *values.shape[1:])).index_put_((groups,), values, accumulate=True)


def look_up(keys: Tensor, values: Tensor, wanted: Tensor) -> Tensor:
    """The rows of `values` for the wanted keys; zeros if a key is missing. Keys are sorted and unique."""
    if len(keys) == 0:
        return values.new_zeros((len(wanted), *values.shape[1:]))
    places = find(keys, wanted)
    return values[places].masked_fill(spread(keys[places] != wanted, values), 0)


def find(keys: Tensor, wanted: Tensor) -> Tensor:
    """The position of each wanted key, if it exists."""
    return torch.searchsorted(keys, wanted).clamp_(max=max(len(keys) - 1, 0))


def runs(starts: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """All positions of the runs, concatenated, and the run of each position."""
    owners = torch.repeat_interleave(lengths)
    first = (lengths.cumsum(0) - lengths)[owners]
    return starts[owners] + torch.arange(len(owners), device=owners.device) - first, owners
