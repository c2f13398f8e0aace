"""Rows of crates/aten/src/ops/linalg/ldl.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "linalg.ldl_factor",
    "linalg.ldl_factor_ex",
    "linalg.ldl_solve",
)
