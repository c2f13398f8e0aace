"""Rows of crates/aten/src/ops/reduce/sort.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "argsort",
    "bucketize",
    "msort",
    "searchsorted",
    "sort",
    "topk",
)
