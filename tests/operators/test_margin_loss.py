"""Rows of crates/aten/src/ops/nn/margin_loss.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.margin_ranking_loss",
    "nn.functional.cosine_embedding_loss",
    "nn.functional.hinge_embedding_loss",
    "nn.functional.multi_margin_loss",
    "nn.functional.multilabel_margin_loss",
    "nn.functional.multilabel_soft_margin_loss",
    "nn.functional.triplet_margin_loss",
    "nn.functional.triplet_margin_with_distance_loss",
)
