"""Rows of crates/aten/src/ops/reduce/sort.rs."""

import pytest
import torch

from tests.helpers import assert_same, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "argsort",
    "bucketize",
    "isin",
    "msort",
    "searchsorted",
    "sort",
    "topk",
)


@pytest.mark.parametrize("count", [0, 3, 100])
def test_isin_of_nan_and_infinity(device: torch.device, count: int) -> None:
    elements = torch.tensor([[1.0, torch.nan, torch.inf], [-torch.inf, 7.0, 99.5]])
    for tests in (torch.arange(count), torch.tensor([torch.nan, 7.0, 1.0, torch.inf]).repeat(count)):
        for invert in (False, True):
            result = torch.isin(elements.to(device), tests.to(device), invert=invert)
            assert_same(result, torch.isin(elements, tests, invert=invert))


@pytest.mark.parametrize("sizes", [(), (0,), (3,)], ids=str)
def test_searchsorted_knows_two_sides(device: torch.device, sizes: tuple[int, ...]) -> None:
    def run(d: torch.device) -> torch.Tensor:
        return torch.searchsorted(torch.arange(3.0, device=d), torch.ones(sizes, device=d), side="middle")

    assert "side can only be 'left' or 'right' but got middle" in str(check_refused(run, device))
