"""Views of one buffer of bytes as tensors of other types, beside arguments of changing sizes.

No other test has made these calls in its process: a call that was made before has a program of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.helpers import assert_same, programs_made

LENGTHS = (5, 9, 14, 12, 7, 11, 9, 13)


def pages(device: torch.device) -> Tensor:
    """A float32 view that begins within a buffer of bytes."""
    buffer = torch.zeros(64 + 32 * 12 * 4, dtype=torch.uint8).to(device)
    return buffer[64:].view(torch.float32).view(32, 12)


def write_rows(cache: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    return cache.index_copy_(0, rows, values).clone()


def write_and_read(cache: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    cache.index_copy_(0, rows, values)
    return torch.index_select(cache, 0, rows) + cache[3]


def write_by_mask(cache: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    cache[rows] = values * 2
    return cache[rows].sum(0)


def conjugated(cache: Tensor, rows: Tensor, values: Tensor) -> Tensor:
    del values
    turned = torch.view_as_complex(cache.view(32, 6, 2)).conj()
    return turned.index_select(0, rows) * 2


BUFFERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "write": write_rows,
    "read": write_and_read,
    "mask": write_by_mask,
    "conjugate": conjugated,
}


def check_buffers(name: str, device: torch.device) -> None:
    """Results equal the CPU's, and after the third length no program is made."""
    torch.manual_seed(0)
    expected, actual, made = pages(torch.device("cpu")), pages(device), []
    for length in LENGTHS:
        rows, values = torch.randperm(32)[:length], torch.randn(length, 12)
        given = rows.to(device), values.to(device)
        before = programs_made()
        assert_same(BUFFERS[name](actual, *given).cpu(), BUFFERS[name](expected, rows, values))
        assert_same(actual.cpu(), expected.clone())
        made.append(programs_made() - before)
    assert not any(made[3:]), (name, made)


def check_triangles(device: torch.device) -> None:
    """The diagonal is an input of the program, and so are the sizes of the part that is written."""
    made = []
    for length in LENGTHS:
        expected = torch.ones(16, 32)
        actual = expected.to(device)
        before = programs_made()
        for mask in (actual, expected):
            mask[:length, length : 2 * length].triu_(length // 2 - 1)
            mask.tril_(length - 8)
        assert_same(actual.cpu(), expected.clone())
        made.append(programs_made() - before)
    assert not any(made[3:]), made


if __name__ == "__main__":
    torch.tpu.set_eager_mode("strict")
    set_sizes("dynamic")
    if sys.argv[1] == "triangles":
        check_triangles(torch.device("tpu"))
    else:
        check_buffers(sys.argv[1], torch.device("tpu"))
