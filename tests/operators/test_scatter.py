"""Rows of crates/aten/src/ops/index/scatter.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "_segment_reduce.lengths",
    "_segment_reduce.offsets",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "bincount",
    "histc",
    "histogram",
    "histogramdd",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce.amax",
    "index_reduce.amin",
    "index_reduce.mean",
    "index_reduce.prod",
    "masked_fill",
    "masked_scatter",
    "scatter",
    "scatter_add",
    "scatter_reduce.amax",
    "scatter_reduce.amin",
    "scatter_reduce.mean",
    "scatter_reduce.prod",
    "scatter_reduce.sum",
)
