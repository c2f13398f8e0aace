"""Rows of crates/aten/src/ops/nn/loss.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.binary_cross_entropy",
    "nn.functional.binary_cross_entropy_with_logits",
    "nn.functional.gaussian_nll_loss",
    "nn.functional.huber_loss",
    "nn.functional.kl_div",
    "nn.functional.l1_loss",
    "nn.functional.mse_loss",
    "nn.functional.poisson_nll_loss",
    "nn.functional.smooth_l1_loss",
    "nn.functional.soft_margin_loss",
)


def test_a_negative_beta_is_refused(device: torch.device) -> None:
    """Also if the program of another beta exists."""
    x = torch.ones(3, device=device)
    torch.nn.functional.smooth_l1_loss(x, x, beta=2.0)

    def run(d: torch.device) -> torch.Tensor:
        return torch.nn.functional.smooth_l1_loss(torch.ones(3, device=d), torch.ones(3, device=d), beta=-2.0)

    assert "does not support negative values for beta" in str(check_refused(run, device))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_huber_loss_of_a_larger_target(reduction: str, device: torch.device, mode: str) -> None:
    """vmap calls it so."""
    prediction, targets = torch.arange(5.0), torch.arange(10.0).reshape(2, 5).sqrt()

    def run(d: torch.device) -> torch.Tensor:
        each = torch.vmap(torch.nn.functional.huber_loss, (None, 0))
        return each(prediction.to(d), targets.to(d), reduction=reduction)

    check(run, device)
