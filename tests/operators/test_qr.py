"""Rows of crates/aten/src/ops/linalg/qr.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "geqrf",
    "linalg.householder_product",
    "linalg.qr",
    "ormqr",
)
