"""Rows of crates/aten/src/ops/index/indexing.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "__getitem__",
    "combinations",
    "gather",
    "index_put",
    "index_select",
    "nn.functional.one_hot",
    "put",
    "take",
    "take_along_dim",
    "unravel_index",
)
