"""New tensors whose size is a product of sizes, one of which changes: batch and length in one dimension."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

LENGTHS = (5, 9, 13, 7, 11, 12)


def zeros_like(x: Tensor) -> Tensor:
    rows = torch.arange(0, 10, 2, device=x.device)
    return torch.zeros_like(x).index_add(0, rows, x[rows] * 2) + x


def scattered(x: Tensor) -> Tensor:
    places = (x[:, :2] > 0).long() + torch.tensor([0, 2], device=x.device)
    return torch.zeros(x.shape, device=x.device).scatter_(1, places, x[:, :2])


def put(x: Tensor) -> Tensor:
    y = torch.zeros_like(x)
    y[torch.tensor([3, 0], device=x.device)] = torch.ones(2, x.shape[1], device=x.device)
    return y.view(3, -1, x.shape[1]) + 1


def by_index(x: Tensor) -> tuple[Tensor, ...]:
    """Reads and writes at indices that count the valid elements of batch and length together."""
    last = x.shape[0] - 1
    rows = torch.tensor([last, 0, 7, 4], device=x.device)
    rows_of_each = rows.unsqueeze(1).expand(-1, x.shape[1])
    columns = torch.tensor([1, -1, 0, 2], device=x.device)
    values = torch.ones(4, x.shape[1], device=x.device)
    return (
        x[rows],
        x[rows - last - 1],
        x[rows, columns],
        x[None, rows],
        x.index_select(0, rows),
        x.gather(0, rows_of_each),
        x.index_copy(0, rows, values),
        x.index_add(0, rows.int(), values, alpha=2),
        x.index_reduce(0, rows, values, "amax"),
        x.scatter(0, rows_of_each, values),
        x.scatter_add(0, rows_of_each, values),
        x.scatter_reduce(0, rows_of_each, values, "mean", include_self=False),
        x.index_put((rows, columns), values[:, 0], accumulate=True),
        x.index_put((columns - 4,), values),
        x.index_fill(0, rows, 3.0),
    )


def compared(function: Callable[[Tensor], object], width: int, device: torch.device) -> list[int]:
    """Compares results of each length with the CPU's, and returns how many programs were made."""
    made = []
    for length in LENGTHS:
        x = torch.randn(3, length, width)
        on_device = x.to(device)
        before = programs_made()
        assert_same(function(on_device.flatten(0, 1)), function(x.flatten(0, 1)))
        made.append(programs_made() - before)
    return made


# No other test has made tensors of these widths: a call that was made before has a program of its own.
@pytest.mark.parametrize(
    ("function", "mode", "width"),
    [
        (zeros_like, "strict", 47),
        (zeros_like, "fused", 49),
        (scattered, "strict", 51),
        (scattered, "fused", 53),
        (put, "strict", 55),
        (put, "fused", 57),
        (by_index, "strict", 63),
        (by_index, "fused", 65),
    ],
)
def test_new_tensors(function: Callable[[Tensor], Tensor], mode: str, width: int, device: torch.device) -> None:
    """After the third length no program is made, and results are exact."""
    torch.tpu.set_eager_mode(mode)
    made = compared(function, width, device)
    assert not any(made[3:]), made


def sequences(x: Tensor) -> tuple[Tensor, ...]:
    rows, like = x.shape[0], {"device": x.device}
    steps, diagonal = torch.linspace(-1, 1, rows, **like), torch.eye(rows, **like)
    whole = torch.linspace(-9, 9, rows, dtype=torch.int64, **like)
    curve = torch.logspace(0, 2, rows, **like)
    return steps, steps[:, None] * x, whole, curve, diagonal, diagonal @ x, torch.eye(4, rows, **like) @ x


@pytest.mark.parametrize(("mode", "width"), [("strict", 69), ("fused", 71)], indirect=["mode"])
def test_numbers_that_follow_from_positions(mode: str, width: int, device: torch.device) -> None:
    """Each line comes to one program for all sizes."""
    made = compared(sequences, width, device)
    assert made[-1] == 0, made


def test_an_index_behind_the_valid_elements(device: torch.device, mode: str) -> None:
    """It is out of range, although the padded value has an element there."""
    for length in LENGTHS:
        x = torch.ones(3, length, 67).to(device).flatten(0, 1)
        rows = torch.tensor([0, 3 * length]).to(device)
        with pytest.raises(
            IndexError, match=f"index {3 * length} is out of bounds for dimension 0 with size {3 * length}"
        ):
            x[rows].cpu()
        with pytest.raises(IndexError, match=f"index {-3 * length - 1} is out of bounds"):
            x[-rows - 1].cpu()


def test_a_new_tensor_of_this_size_by_chance_is_exact(device: torch.device) -> None:
    """A line that makes one size is no line of changing sizes."""
    for length in LENGTHS:
        x = torch.randn(3, length, 5).to(device) + 1
    weight = torch.zeros(x.shape[0] * x.shape[1], 59, device=device)
    weight.add_(1)
    unpadded = torch.tpu.op_stats()["unpadded"]
    assert_same(weight, torch.ones(36, 59))
    assert torch.tpu.op_stats()["unpadded"] == unpadded
