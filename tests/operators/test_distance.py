"""Rows of crates/aten/src/ops/nn/distance.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "cdist",
    "nn.functional.cosine_similarity",
    "nn.functional.pairwise_distance",
    "nn.functional.pdist",
)
