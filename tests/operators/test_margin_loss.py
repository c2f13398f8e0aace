"""Rows of crates/aten/src/ops/nn/margin_loss.rs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from tests.helpers import check_refused
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
