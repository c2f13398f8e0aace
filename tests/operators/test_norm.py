"""Rows of crates/aten/src/ops/nn/norm.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "native_group_norm",
    "native_layer_norm",
    "nn.functional.group_norm",
    "nn.functional.layer_norm",
    "nn.functional.local_response_norm",
    "nn.functional.normalize",
    "nn.functional.rms_norm",
)
