"""Rows of crates/aten/src/ops/elementwise/compare.rs."""

from tests.operators.samples import samples

test_samples = samples(
    "bitwise_and",
    "bitwise_left_shift",
    "bitwise_or",
    "bitwise_right_shift",
    "bitwise_xor",
    "eq",
    "equal",
    "ge",
    "gt",
    "le",
    "logical_and",
    "logical_or",
    "logical_xor",
    "lt",
    "ne",
)
