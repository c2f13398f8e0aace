"""Rows of crates/aten/src/ops/nn/nll.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.cross_entropy",
    "nn.functional.linear_cross_entropy",
    "nn.functional.linear_cross_entropy.chunked",
    "nn.functional.linear_cross_entropy.chunked_none",
    "nn.functional.nll_loss",
)
