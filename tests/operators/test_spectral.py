"""Rows of crates/aten/src/ops/linalg/spectral.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "linalg.cond",
    "linalg.eigh",
    "linalg.eigvalsh",
    "linalg.lstsq",
    "linalg.lstsq.grad_oriented",
    "linalg.matrix_rank",
    "linalg.matrix_rank.hermitian",
    "linalg.matrix_sqrth",
    "linalg.pinv",
    "linalg.pinv.hermitian",
    "linalg.pinv.singular",
    "linalg.svd",
    "linalg.svdvals",
    "matrix_exp",
    "pca_lowrank",
    "pinverse",
    "svd",
    "svd_lowrank",
)
