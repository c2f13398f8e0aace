"""Rows of crates/aten/src/ops/nn/margin_loss.rs."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.margin_ranking_loss",
    "nn.functional.cosine_embedding_loss",
    "nn.functional.hinge_embedding_loss",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.multilabel_soft_margin_loss",
    "nn.functional.triplet_margin_loss",
    "nn.functional.triplet_margin_with_distance_loss",
)


def test_weights_of_another_dtype_are_refused(device: torch.device) -> None:
    def run(d: torch.device) -> Tensor:
        target, weight = torch.zeros(3, dtype=torch.int64, device=d), torch.ones(4, dtype=torch.float64, device=d)
        return nn.functional.multi_margin_loss(torch.zeros(3, 4, device=d), target, weight=weight)

    assert "expected scalar type Float but found Double" in str(check_refused(run, device))


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("margin", [1.0, math.nan])
def test_no_margin_is_violated_by_nan(device: torch.device, p: int, margin: float) -> None:
    scores = torch.tensor([[1, math.nan, 2], [math.nan, 1, 0], [1, math.inf, -math.inf], [math.inf, 0, 1]])

    def run(d: torch.device) -> list[Tensor]:
        x, target = scores.to(d).requires_grad_(), torch.tensor([0, 1, 2, 0], device=d)
        classes = torch.stack([target, torch.full_like(target, -1), target], 1)
        losses = [
            nn.functional.multi_margin_loss(x, target, p=p, margin=margin, reduction="none"),
            nn.functional.multilabel_margin_loss(x, classes, reduction="none"),
        ]
        return [*(loss.detach() for loss in losses), *torch.autograd.grad(sum(losses).sum(), x)]

    check(run, device)
