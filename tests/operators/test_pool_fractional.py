"""Rows of crates/aten/src/ops/nn/pool_fractional.rs."""

import pytest
import torch

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
)


def test_a_window_of_more_elements_than_int64_holds_with_the_outputs(device: torch.device) -> None:
    """PyTorch's CPU does not notice that, and returns -inf."""
    x = torch.ones(1, 1, 9, 9, device=device)
    with pytest.raises(RuntimeError, match="a window of 9223372036854775807 elements is larger than 9"):
        torch.nn.functional.fractional_max_pool2d(x, 2**63 - 1, output_size=2)
    assert torch.nn.functional.fractional_max_pool2d(x, 2, output_size=2).flatten().tolist() == [1] * 4
