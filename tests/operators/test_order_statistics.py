"""Rows of crates/aten/src/ops/reduce/order_statistics.rs."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.helpers import check
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
