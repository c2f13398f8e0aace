"""Rows of crates/aten/src/ops/nn/batch_norm.rs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "native_batch_norm",
    "nn.functional.batch_norm",
    "nn.functional.batch_norm.without_cudnn",
    "nn.functional.instance_norm",
)


@pytest.mark.parametrize("is_last", [False, True])
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2)], ids=str)
def test_parameters_of_more_dimensions(shape: tuple[int, int], is_last: bool, device: torch.device) -> None:
    """PyTorch counts the elements of a parameter only."""

    def run(d: torch.device) -> Tensor:
        x = torch.arange(48.0).reshape(2, 4, 3, 2).sin().to(d)
        x = x.contiguous(memory_format=torch.channels_last) if is_last else x
        weight, bias = (
            torch.linspace(1, 2, 4, device=d).reshape(shape),
            torch.linspace(0, 1, 4, device=d).reshape(shape),
        )
        return torch.nn.functional.batch_norm(x, None, None, weight, bias, training=True)

    check(run, device)


def test_parameters_of_one_channel(device: torch.device) -> None:
    def run(d: torch.device) -> Tensor:
        x, number = torch.arange(6.0).reshape(2, 1, 3).to(d), torch.tensor(2.0, device=d)
        return torch.nn.functional.batch_norm(x, None, None, number, number, training=True)

    check(run, device)
