"""Rows of crates/aten/src/ops/reduce/scan.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "linalg.vander",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "logcumsumexp",
    "masked.cumprod",
    "masked.cumsum",
)


@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_in_place_results_of_booleans_are_refused(name: str, device: torch.device) -> None:
    check_refused(lambda on: getattr(torch.tensor([True, False], device=on), name)(0), device)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int32, torch.float16])
@pytest.mark.parametrize("name", ["cumsum_", "cumprod_"])
def test_in_place_results_overflow_as_on_the_cpu(name: str, dtype: torch.dtype, device: torch.device) -> None:
    check(lambda on: getattr(torch.tensor([100, 50, 3, 7], device=on).to(dtype), name)(0), device)
