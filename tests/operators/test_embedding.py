"""Rows of crates/aten/src/ops/nn/embedding.rs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.helpers import check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
)


@pytest.mark.parametrize("shape", [(2,), (2, 2, 2)])
@pytest.mark.parametrize(
    "call",
    [
        torch.embedding_bag,
        torch._embedding_bag,
        torch._embedding_bag_forward_only,
        lambda weight, words, offsets: F.embedding_bag(words, weight, offsets),
    ],
    ids=["embedding_bag", "_embedding_bag", "_embedding_bag_forward_only", "functional"],
)
def test_bags_of_weights_that_are_no_matrix(
    call: Callable[[Tensor, Tensor, Tensor], object], shape: tuple[int, ...], device: torch.device
) -> None:
    def program(device: torch.device) -> object:
        numbers = torch.zeros(2, dtype=torch.int64, device=device)
        return call(torch.zeros(shape, device=device), numbers, numbers)

    assert "weight has to be a 2D Tensor" in str(check_refused(program, device))
