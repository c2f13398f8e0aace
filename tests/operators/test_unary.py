"""Rows of crates/aten/src/ops/elementwise/unary.rs."""

import math

import pytest
import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "conj_physical",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "frexp",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "jiterator_2inputs_2outputs",
    "jiterator_4inputs_with_extra_args",
    "jiterator_binary",
    "jiterator_binary_return_by_ref",
    "jiterator_unary",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "round",
    "round.decimals_0",
    "round.decimals_3",
    "round.decimals_neg_3",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
)


def test_conj_physical_in_place(device: torch.device) -> None:
    def program(device: torch.device) -> torch.Tensor:
        x = torch.complex(torch.arange(6.0), torch.arange(6.0) - 2).reshape(2, 3).to(device)
        x.t()[1:].conj_physical_()
        return x

    check(program, device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_exponential_of_minus_infinity_is_zero(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    parts = [0.0, -2.5, math.inf, -math.inf, math.nan]
    numbers = torch.tensor([complex(-math.inf, part) for part in parts] + [complex(0.5, 2)], dtype=dtype)
    check(lambda device: numbers.to(device).exp(), device)
