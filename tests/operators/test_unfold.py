"""Rows of crates/aten/src/ops/nn/unfold.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.unfold",
)
