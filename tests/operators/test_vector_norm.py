"""Rows of crates/aten/src/ops/reduce/vector_norm.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "dist",
    "linalg.matrix_norm",
    "linalg.norm",
    "linalg.norm.subgradients_at_zero",
    "linalg.vector_norm",
    "masked.norm",
    "masked.normalize",
    "norm",
    "norm.fro",
    "norm.inf",
    "norm.nuc",
    "renorm",
)
