"""Rows of crates/aten/src/ops/nn/nll.rs."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.cross_entropy",
    "nn.functional.linear_cross_entropy",
    "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none",
    "nn.functional.nll_loss",
)


@pytest.mark.parametrize("other", [torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (4, 3), (3,), (0, 3, 2, 2), (2, 3, 2, 2)], ids=str)
def test_weights_of_another_dtype_are_refused(device: torch.device, shape: tuple[int, ...], other: torch.dtype) -> None:
    def run(d: torch.device, loss: Callable[..., Tensor] = nn.functional.nll_loss) -> Tensor:
        classes = shape[0] if len(shape) == 1 else shape[1]
        target = torch.zeros(shape[:1] + shape[2:] if len(shape) > 1 else (), dtype=torch.int64, device=d)
        return loss(torch.zeros(shape, device=d), target, weight=torch.ones(classes, dtype=other, device=d))

    error = check_refused(run, device)
    assert re.search("expected scalar type Float but found (Double|Half|Long)", str(error))
    check_refused(partial(run, loss=nn.functional.cross_entropy), device)


def test_weights_of_another_dtype_are_refused_in_backward(device: torch.device) -> None:
    def run(d: torch.device) -> Tensor:
        one, weight = torch.ones((), device=d), torch.ones(4, dtype=torch.float64, device=d)
        target = torch.zeros(3, dtype=torch.int64, device=d)
        return torch.ops.aten.nll_loss_backward(one, torch.zeros(3, 4, device=d), target, weight, 1, -100, one)

    check_refused(run, device)
