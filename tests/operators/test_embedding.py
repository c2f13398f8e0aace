"""Rows of crates/aten/src/ops/nn/embedding.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.embedding",
    "nn.functional.embedding_bag",
)
