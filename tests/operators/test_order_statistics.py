"""Rows of crates/aten/src/ops/reduce/order_statistics.rs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, check, programs_made
from tests.operators.samples import samples

test_samples = samples(
    "kthvalue",
    "masked.median",
    "median",
    "mode",
    "nanmedian",
    "nanquantile",
    "quantile",
)


def test_medians_are_deterministic(device: torch.device) -> None:
    """CUDA refuses the index of a median under deterministic algorithms, and PyTorch's meta kernel does so too."""

    def program(device: torch.device) -> list[Tensor]:
        x = torch.tensor([[3.0, 1.0, 4.0, 2.0], [0.0, 5.0, 7.0, 6.0]], device=device)
        return [*torch.median(x, 1), *torch.nanmedian(x, 0)]

    torch.use_deterministic_algorithms(True)
    try:
        check(program, device)
    finally:
        torch.use_deterministic_algorithms(False)


def test_ranks_that_vary_share_a_program(device: torch.device, mode: str) -> None:
    numbers = torch.randn(11, 47)
    on_device = numbers.to(device)
    made = []
    for rank in (5, 9, 1, 47, 30, 22, 46, 13, 2, 38):
        before = programs_made()
        found = [part.cpu() for part in on_device.kthvalue(rank, keepdim=True)]
        made.append(programs_made() - before)
        assert_same(found, list(numbers.kthvalue(rank, keepdim=True)))
    assert not any(made[6:]), made
    for rank in (0, 48, -1):
        with pytest.raises(RuntimeError, match="selected number k out of range for dimension 1"):
            on_device.kthvalue(rank)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.float32], ids=str)
def test_medians_of_any_number(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """Padding is not counted, also where the dtype has no NaN."""
    for size in (5, 9, 13, 7, 4):
        numbers = torch.randint(0, 99, (3, size)).to(dtype)
        on_cpu, on_device = numbers, numbers.to(device)
        for median in (torch.median, torch.nanmedian):
            assert_same(median(on_device, 1).values, median(on_cpu, 1).values)
            assert_same(median(on_device), median(on_cpu))
