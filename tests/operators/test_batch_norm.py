"""Rows of crates/aten/src/ops/nn/batch_norm.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "_batch_norm_with_update",
    "_native_batch_norm_legit",
    "native_batch_norm",
    "nn.functional.batch_norm",
    "nn.functional.batch_norm.without_cudnn",
    "nn.functional.instance_norm",
)
