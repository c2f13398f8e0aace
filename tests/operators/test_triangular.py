"""Rows of crates/aten/src/ops/linalg/triangular.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "cholesky_inverse",
    "cholesky_solve",
    "cross",
    "linalg.cholesky",
    "linalg.cholesky_ex",
    "linalg.cross",
    "linalg.solve_triangular",
    "triangular_solve",
)
