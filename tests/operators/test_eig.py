"""Rows of crates/aten/src/ops/linalg/eig.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "linalg.eig",
    "linalg.eigvals",
)
