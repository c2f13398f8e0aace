"""Dimensions of more than 2**31 elements, whose positions no int32 holds."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

SIZE = 2**31 + 8


def need(bytes_per_element: int) -> None:
    """Skips a test where memory is short: the kernel would end the process, and with it the tests after this one."""
    needed = bytes_per_element * SIZE
    if torch.tpu.mem_get_info()[0] < needed:
        pytest.skip(f"needs {needed / 2**30:.0f} GiB of free memory")


@pytest.fixture
def large(device: torch.device) -> Tensor:
    """Zeros of int8, and 1 to 8 at the end."""
    need(2)  # the tensor and a copy of it
    x = torch.zeros(SIZE, dtype=torch.int8, device=device)
    x[-8:] = torch.arange(1, 9, dtype=torch.int8, device=device)
    return x


def last_after(write: Callable[[Tensor], object]) -> Callable[[Tensor], list[int]]:
    """The last twelve elements after a write. The first is at 2**31 - 4."""

    def end(x: Tensor) -> list[int]:
        write(x)
        return x[-12:].tolist()

    return end


def at(x: Tensor, *places: int) -> Tensor:
    return torch.tensor(places, device=x.device)


def two(x: Tensor) -> Tensor:
    return torch.tensor([7, 9], dtype=x.dtype, device=x.device)


CASES: dict[str, tuple[Callable[[Tensor], object], object]] = {
    "an element": (last_after(lambda x: x[-1].fill_(20)), [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 20]),
    # The start is an int32, the size is not.
    "with steps": (last_after(lambda x: x[2**31 - 3 :: 4].add_(9)), [0, 9, 0, 0, 1, 11, 3, 4, 5, 15, 7, 8]),
    "a view of rows": (last_after(lambda x: x.view(-1, 4)[-1].zero_()), [0, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0]),
    "index_put": (
        last_after(lambda x: x.index_put_((at(x, -1, 2**31 - 1),), two(x))),
        [0, 0, 0, 9, 1, 2, 3, 4, 5, 6, 7, 7],
    ),
    "scatter": (
        last_after(lambda x: x.scatter_(0, at(x, 2**31, 0), two(x))),
        [0, 0, 0, 0, 7, 2, 3, 4, 5, 6, 7, 8],
    ),
    "reads": (
        lambda x: [x[at(x, -2, 2**31)].tolist(), x.gather(0, at(x, 2**31 + 2)).tolist(), x[2**31 - 1 :: 3].tolist()],
        [[7, 1], [3], [0, 3, 6]],
    ),
    "triangles": (
        lambda x: [
            x[None].tril(2**31 + 1)[0, -8:].tolist(),
            x[None].triu(2**31 + 1)[0, -8:].tolist(),
        ],
        [[1, 2, 0, 0, 0, 0, 0, 0], [0, 2, 3, 4, 5, 6, 7, 8]],
    ),
    "windows": (lambda x: x.unfold(0, 4, 2**31 + 2).tolist(), [[0, 0, 0, 0], [3, 4, 5, 6]]),
    "searchsorted": (lambda x: torch.searchsorted(x, two(x)).tolist(), [2**31 + 6, SIZE]),
}
# Tens of seconds, or more memory: the bytes for each element.
LONG_CASES: dict[str, tuple[int, Callable[[Tensor], object], object]] = {
    "argmax": (20, lambda x: x.argmax().item(), SIZE - 1),
    "max": (20, lambda x: [each.item() for each in x.max(0)], [8, SIZE - 1]),
    "sum": (3, lambda x: x.sum().item(), 36),
    "topk": (7, lambda x: [each.tolist() for each in x.topk(2)], [[8, 7], [SIZE - 1, SIZE - 2]]),
    "flip": (3, lambda x: x.flip(0)[:9].tolist(), [8, 7, 6, 5, 4, 3, 2, 1, 0]),
    "cumsum": (4, lambda x: x.cumsum(0, dtype=torch.int8)[-8:].tolist(), [1, 3, 6, 10, 15, 21, 28, 36]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_positions_beyond_int32(large: Tensor, case: tuple[Callable[[Tensor], object], object]) -> None:
    run, expected = case
    assert run(large) == expected


@pytest.mark.slow
@pytest.mark.parametrize("case", LONG_CASES.values(), ids=LONG_CASES.keys())
def test_operators_over_many_elements(large: Tensor, case: tuple[int, Callable[[Tensor], object], object]) -> None:
    bytes_per_element, run, expected = case
    need(bytes_per_element)
    assert run(large) == expected
