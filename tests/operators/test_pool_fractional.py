"""Rows of crates/aten/src/ops/nn/pool_fractional.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.fractional_max_pool2d",
    "nn.functional.fractional_max_pool3d",
)
