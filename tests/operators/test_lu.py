"""Rows of crates/aten/src/ops/linalg/lu.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "linalg.det",
    "linalg.inv",
    "linalg.inv_ex",
    "linalg.lu",
    "linalg.lu_factor",
    "linalg.lu_factor_ex",
    "linalg.lu_solve",
    "linalg.slogdet",
    "linalg.solve",
    "linalg.solve_ex",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
)
