"""Rows of crates/aten/src/ops/nn/pad.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "constant_pad_nd",
    "nn.functional.pad.circular",
    "nn.functional.pad.constant",
    "nn.functional.pad.reflect",
    "nn.functional.pad.replicate",
    "nn.functional.pad.replicate_negative",
)
