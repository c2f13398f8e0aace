"""Rows of crates/aten/src/ops/nn/pool_adaptive.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.adaptive_avg_pool1d",
    "nn.functional.adaptive_avg_pool2d",
    "nn.functional.adaptive_avg_pool3d",
    "nn.functional.adaptive_max_pool1d",
    "nn.functional.adaptive_max_pool2d",
    "nn.functional.adaptive_max_pool3d",
)
