"""Rows of crates/aten/src/ops/reduce/scan.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "linalg.vander",
    "cummax",
    "cummin",
    "cumprod",
    "cumsum",
    "cumulative_trapezoid",
    "logcumsumexp",
    "masked.cumprod",
    "masked.cumsum",
)
