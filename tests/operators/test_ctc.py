"""Rows of crates/aten/src/ops/nn/ctc.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.ctc_loss",
)
