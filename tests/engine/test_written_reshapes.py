"""Writes to a part of a value that is reshaped from what the part is made of: the part is read first."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check, check_compiled


def cloned(b: Tensor) -> Tensor:
    x = b.view(40, 7)
    y = x.clone()
    y[1:5] = x[:4]
    return y


def cloned_and_scaled(b: Tensor) -> Tensor:
    y = b.view(40, 7).clone()
    y[1:5] = b[:28].view(4, 7) * 2
    return y


def of_a_sum(b: Tensor) -> Tensor:
    c = b + 1
    y = c.view(40, 7).clone()
    y[1:5] = c[:28].view(4, 7) + c[28:56].view(4, 7)
    return y * c.view(40, 7)


def columns(b: Tensor) -> Tensor:
    y = b.view(5, 8, 7).clone()
    y[:, 1:4] = b.view(5, 56)[:, :21].reshape(5, 3, 7)
    return y


def columns_of_itself(b: Tensor) -> Tensor:
    y = (b + 1).view(40, 7)
    y[:, 1:4] = y[:, :3] * 2
    y[1:3] = y[:2] + y[1:3]
    return y


def copied(b: Tensor) -> Tensor:
    y = torch.empty(40, 7, device=b.device)
    y.copy_(b.view(40, 7))
    y[2:9] = y[1:8] - b.view(40, 7)[:7]
    return y


def repeatedly(b: Tensor) -> Tensor:
    y = b.view(40, 7).clone()
    for i in range(1, 9):
        y[i : i + 2] = y[i - 1 : i + 1] + 1
    return y


def of_a_product(b: Tensor) -> Tensor:
    y = nn.functional.linear(b.view(4, 10, 7), torch.ones(3, 7, device=b.device))
    y[:, 1:5] = y[:, :4] * 2
    return y


def scattered(b: Tensor) -> Tensor:
    x = b.view(40, 7)
    return x.slice_scatter(x[:4], 0, 1, 5) + x.slice_scatter(b[:28].view(4, 7) * 2, 0, 2, 6)


def selected(b: Tensor) -> Tensor:
    x = b.view(40, 7)
    return x.select_scatter(b[:7] + 1, 0, 1) * x.diagonal_scatter(x[:7, 0])


def at_many_places(b: Tensor) -> Tensor:
    x = b.view(40, 7)
    return torch.stack([x.slice_scatter(x[:4], 0, i, i + 4) for i in range(1, 9)])


def lengths(b: Tensor) -> Tensor:
    """XLA can make the sum a reshape of the sum of columns."""
    ends = torch.where(b > 0)[0] + 1
    ends[1:] = ends[1:] - ends[:-1]
    return ends


def sum_of_one_column(b: Tensor) -> Tensor:
    """The sum of one element is a reshape."""
    x = (b + 1).view(-1, 1)
    y = x.sum(1)
    y[2:5] = x[1:4].flip(0).flatten()
    return y


def largest_of_one_column(b: Tensor) -> Tensor:
    x = (b + 1).view(-1, 1)
    y = x.amax(1)
    y[2:5] = x[1:4, 0].flip(0)
    return y


def times_one(b: Tensor) -> Tensor:
    x = b + 1
    y = x.view(7, -1) * torch.ones((), device=b.device)
    y[1:3] = x[: 2 * y.shape[1]].flip(0).view(2, -1)
    return y


def one_row(b: Tensor) -> Tensor:
    x = b + 1
    y = torch.broadcast_to(x, (1, len(x))).clone()
    y[0, 2:5] = x[1:4].flip(0)
    return y


def kept_dimension(b: Tensor) -> Tensor:
    y = b.view(-1, 7).sum(-1, keepdim=True)
    y[2:5] = y[1:4] - y[1:4].flip(0)
    return y


def row_at_an_index(b: Tensor) -> Tensor:
    """XLA makes an update of a scatter with one index."""
    x = b + 1
    y = x.view(7, -1) * torch.ones((), device=b.device)
    width = y.shape[1]
    y[torch.tensor([1], device=b.device)] = x[width // 2 : width // 2 + width].flip(0).view(1, -1)
    return y


OF_ANY_LENGTH = (sum_of_one_column, largest_of_one_column, times_one, one_row, kept_dimension, row_at_an_index)
LENGTHS = (42, 126, 63, 84, 119)
CASES: dict[str, Callable[[Tensor], Tensor]] = {
    each.__name__: each
    for each in (
        cloned,
        cloned_and_scaled,
        of_a_sum,
        columns,
        columns_of_itself,
        copied,
        repeatedly,
        of_a_product,
        scattered,
        selected,
        at_many_places,
        lengths,
        *OF_ANY_LENGTH,
    )
}
NUMBERS = torch.arange(280.0).sin()


@pytest.mark.parametrize("name", CASES)
def test_parts_are_read_before_they_are_overwritten(name: str, device: torch.device, mode: str) -> None:
    check(lambda on: CASES[name](NUMBERS.to(on)), device)


@pytest.mark.parametrize("program", OF_ANY_LENGTH)
def test_of_changing_lengths(program: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    for length in LENGTHS:
        numbers = torch.arange(length).sin()
        check(lambda on, numbers=numbers: program(numbers.to(on)), device)


@pytest.mark.parametrize("name", CASES)
def test_in_a_step(name: str, device: torch.device) -> None:
    step = torch.tpu.compile_step(CASES[name])
    torch.testing.assert_close(step(NUMBERS.to(device)).cpu(), CASES[name](NUMBERS))


@pytest.mark.parametrize("name", ["cloned", "columns", "scattered", "repeatedly"])
def test_in_a_graph(name: str, device: torch.device) -> None:
    check_compiled(CASES[name], device, NUMBERS)


@pytest.mark.parametrize("program", OF_ANY_LENGTH)
def test_in_a_graph_of_changing_lengths(program: Callable[[Tensor], Tensor], device: torch.device) -> None:
    compiled = torch.compile(program, backend="tpu")
    for length in LENGTHS:
        numbers = torch.arange(length).sin()
        torch.testing.assert_close(compiled(numbers.to(device)).cpu(), program(numbers))
