"""Rows of crates/aten/src/ops/nn/softmax.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "_softmax_backward_data",
    "log_softmax",
    "log_softmax.with_dtype",
    "masked.log_softmax",
    "masked.softmax",
    "masked.softmin",
    "nn.functional.softmin",
    "nn.functional.softmin.with_dtype",
    "softmax",
    "softmax.with_dtype",
    "torch.ops.aten._safe_softmax.default",
)
