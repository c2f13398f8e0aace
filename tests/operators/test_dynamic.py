"""Rows of crates/aten/src/ops/index/dynamic.rs."""

from __future__ import annotations

import re

import pytest
import torch

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


def test_one_column_has_pytorchs_stride(device: torch.device, mode: str) -> None:
    for x in (torch.tensor([1.0, 0.0, 2.0]), torch.zeros(3), torch.ones(())):
        assert x.to(device).nonzero().stride() == x.nonzero().stride()


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
