"""Rows of crates/aten/src/ops/nn/grid_sample.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "grid_sampler_2d",
    "grid_sampler_3d",
    "nn.functional.grid_sample",
)
