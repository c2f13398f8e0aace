"""Rows of crates/aten/src/ops/index/dynamic.rs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import check_refused
from tests.operators.samples import samples

test_samples = samples(
    "argwhere",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "repeat_interleave",
    "unique",
    "unique_consecutive",
)


def test_coordinates_of_a_dimension_lie_beside_each_other(device: torch.device, mode: str) -> None:
    x = torch.tensor([[0.0, 1.0, 2.0], [3.0, 0.0, 0.0]], device=device)
    rows, columns = x.nonzero().unbind(1)
    assert rows.is_contiguous()
    assert columns.is_contiguous()
    assert x.nonzero().tolist() == [[0, 1], [0, 2], [1, 0]]
    assert (x.nonzero() * 2).sum(0).tolist() == [2, 6]


def test_positions_have_pytorchs_strides(device: torch.device, mode: str) -> None:
    few = ([1.0, 0.0, 2.0], 1.0, [[1.0], [0.0], [2.0]], [[1.0, 0.0], [2.0, 3.0]], [[1.0, 1.0]], [[1.0]], [[[0.0]]])
    for x in (torch.zeros(3), torch.zeros(2, 2), *map(torch.tensor, few)):
        assert x.to(device).nonzero().stride() == x.nonzero().stride()


MASKED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": lambda x, m: x[m[:3]],
    "first of a transpose": lambda x, m: x.permute(0, 2, 1)[m[:3]],
    "middle": lambda x, m: x[:, m],
    "middle of a transpose": lambda x, m: x.permute(2, 1, 0)[:, m],
    "last": lambda x, m: x[..., m[:4]],
    "two dimensions": lambda x, m: x[:, m.outer(m[:4])],
    "of a step": lambda x, m: x.movedim(1, -1)[..., ::2][m[:3]],
    "beside an index": lambda x, m: x[torch.tensor([1], device=x.device), :, m[:4]],
    "distinct columns": lambda x, m: x.unique(dim=1),
}


@pytest.mark.parametrize("name", MASKED)
@pytest.mark.parametrize("chosen", [0, 1, 3, 6])
def test_what_masks_choose_is_dense(name: str, chosen: int, device: torch.device, mode: str) -> None:
    """The memory of a result has the largest size until its number of elements is known."""
    x = torch.arange(72.0).reshape(3, 6, 4)
    # The first and the third element, then others.
    mask = torch.tensor([0, 2, 1, 3, 4, 5]).argsort() < chosen
    expected = MASKED[name](x, mask)
    actual = MASKED[name](x.to(device), mask.to(device))
    torch.testing.assert_close(actual.cpu(), expected)
    assert steps_of(actual) == steps_of(expected)
    assert actual.untyped_storage().nbytes() == expected.untyped_storage().nbytes()


def test_a_number_in_a_tensor(device: torch.device, mode: str) -> None:
    for tests in ([], [1.0, 2.0], [3.0]):
        assert torch.isin(1, torch.tensor(tests, device=device)).tolist() == (1.0 in tests)


def test_the_dtype_of_a_given_result(device: torch.device) -> None:
    x = torch.ones(3)
    with pytest.raises(RuntimeError) as expected:
        torch.nonzero(x, out=torch.empty(0))
    with pytest.raises(RuntimeError, match=re.escape(str(expected.value))):
        torch.nonzero(x.to(device), out=torch.empty(0, device=device))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64])
def test_masks_of_masked_select_are_boolean(dtype: torch.dtype, device: torch.device) -> None:
    error = check_refused(
        lambda device: torch.ones(2, device=device).masked_select(torch.ones(2, dtype=dtype, device=device)), device
    )
    assert "masked_select: expected BoolTensor for mask" in str(error)


def steps_of(tensor: Tensor) -> list[int]:
    """The strides that mean something."""
    return [step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size != 1]


@pytest.mark.parametrize("distinct", [torch.unique, torch.unique_consecutive])
def test_a_number_has_no_dimension(distinct: Callable[..., Tensor], device: torch.device) -> None:
    error = check_refused(lambda device: distinct(torch.tensor(3.0, device=device), dim=0), device)
    assert "Dimension specified as 0 but tensor has no dimensions" in str(error)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("distinct", [torch.unique, torch.unique_consecutive])
def test_distinct_columns_of_rows_in_two_dimensions_that_change(
    device: torch.device, distinct: Callable[..., tuple[Tensor, ...]]
) -> None:
    for rows, columns in ((5, 7), (7, 5), (6, 8), (9, 4), (8, 8)):
        x = torch.ones(rows, columns, 4).cumsum(0)
        x[..., 2:] += 1
        found = distinct(x.to(device).flatten(0, 1), return_inverse=True, return_counts=True, dim=1)
        expected = distinct(x.flatten(0, 1), return_inverse=True, return_counts=True, dim=1)
        for actual, wanted in zip(found, expected, strict=True):
            assert actual.tolist() == wanted.tolist()


def test_a_number_of_positions_that_no_memory_holds(device: torch.device) -> None:
    """XLA's compiler threw an exception, which ended the process."""
    number, vector = torch.ones((), device=device), torch.ones(3, device=device)
    assert torch.nonzero_static(number, size=2**40).shape == (2**40, 0)
    with pytest.raises(RuntimeError, match=r"Storage size .* overflowed with sizes=\[4611686018427387904, 0\]"):
        torch.nonzero_static(number, size=2**62)
    for size in (2**40, 2**62):
        with pytest.raises(torch.OutOfMemoryError, match="Tried to allocate"):
            torch.nonzero_static(vector, size=size)
    assert torch.nonzero_static(vector, size=2).tolist() == [[0], [1]]
