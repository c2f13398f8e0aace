"""Rows of crates/aten/src/ops/index/dynamic.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "argwhere",
    "masked_select",
    "nonzero",
    "nonzero_static",
    "repeat_interleave",
    "unique",
    "unique_consecutive",
)
