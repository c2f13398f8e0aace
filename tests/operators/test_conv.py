"""Rows of crates/aten/src/ops/nn/conv.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
)
