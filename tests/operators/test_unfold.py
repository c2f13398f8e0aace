"""Rows of crates/aten/src/ops/nn/unfold.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.unfold",
)


@pytest.mark.parametrize("padding", [(-1, 1), (1, -1)])
@pytest.mark.parametrize("batch", [0, 2])
def test_a_negative_padding_is_refused(padding: tuple[int, int], batch: int, device: torch.device) -> None:
    def run(d: torch.device) -> torch.Tensor:
        return torch.nn.functional.unfold(torch.ones(batch, 1, 5, 5, device=d), 2, padding=padding)

    assert "padding should be non-negative" in str(check_refused(run, device))


def test_strides_near_the_end_of_int64(device: torch.device) -> None:
    def run(stride: int, d: torch.device) -> torch.Tensor:
        return torch.nn.functional.unfold(torch.arange(50.0).view(2, 1, 5, 5).to(d), 2, stride=stride)

    check(lambda d: run(2**62, d), device)
    # PyTorch's own number of windows overflows.
    with pytest.raises(RuntimeError, match="PyTorch expects|possible overflow"):
        run(2**63 - 1, device)
