"""Rows of crates/aten/src/ops/index/jagged.rs; test_nested.py has more."""

from tests.operators.samples import samples

test_samples = samples(
    "jagged.add",
    "jagged.bmm",
    "jagged.clone",
    "jagged.linalg.vector_norm",
    "jagged.matmul",
    "jagged.mean",
    "jagged.nn.functional.rms_norm",
    "jagged.squeeze",
    "jagged.sum",
    "jagged.unflatten",
)
