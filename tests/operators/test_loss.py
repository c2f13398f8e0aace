"""Rows of crates/aten/src/ops/nn/loss.rs."""

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
