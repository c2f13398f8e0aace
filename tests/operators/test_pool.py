"""Rows of crates/aten/src/ops/nn/pool.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "max_pool2d_with_indices_backward",
    "nn.functional.avg_pool1d",
    "nn.functional.avg_pool2d",
    "nn.functional.avg_pool3d",
    "nn.functional.max_pool1d",
    "nn.functional.max_pool2d",
    "nn.functional.max_pool3d",
    "nn.functional.max_unpool1d",
    "nn.functional.max_unpool1d.grad",
    "nn.functional.max_unpool2d",
    "nn.functional.max_unpool2d.grad",
    "nn.functional.max_unpool3d",
    "nn.functional.max_unpool3d.grad",
)
