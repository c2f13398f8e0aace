"""Rows of crates/aten/src/ops/reduce/order_statistics.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "kthvalue",
    "masked.median",
    "median",
    "mode",
    "nanmedian",
    "nanquantile",
    "quantile",
)
