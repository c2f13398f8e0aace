"""Rows of crates/aten/src/ops/foreach.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "_foreach_abs",
    "_foreach_acos",
    "_foreach_add",
    "_foreach_addcdiv",
    "_foreach_addcmul",
    "_foreach_asin",
    "_foreach_atan",
    "_foreach_ceil",
    "_foreach_clamp_max",
    "_foreach_clamp_min",
    "_foreach_clone",
    "_foreach_copy",
    "_foreach_cos",
    "_foreach_cosh",
    "_foreach_div",
    "_foreach_erf",
    "_foreach_erfc",
    "_foreach_exp",
    "_foreach_expm1",
    "_foreach_floor",
    "_foreach_frac",
    "_foreach_lerp",
    "_foreach_lgamma",
    "_foreach_log",
    "_foreach_log10",
    "_foreach_log1p",
    "_foreach_log2",
    "_foreach_max",
    "_foreach_maximum",
    "_foreach_minimum",
    "_foreach_mm",
    "_foreach_mul",
    "_foreach_neg",
    "_foreach_norm",
    "_foreach_pow",
    "_foreach_reciprocal",
    "_foreach_round",
    "_foreach_rsqrt",
    "_foreach_sigmoid",
    "_foreach_sign",
    "_foreach_sin",
    "_foreach_sinh",
    "_foreach_sqrt",
    "_foreach_sub",
    "_foreach_tan",
    "_foreach_tanh",
    "_foreach_trunc",
    "_foreach_zero",
)


@pytest.mark.parametrize("factor", [1.5, 1j, [1.5, 2.5], torch.tensor(2.5)])
def test_lists_of_integers_do_not_hold_other_products(factor: object, device: torch.device) -> None:
    def program(device: torch.device) -> None:
        other = factor.to(device) if isinstance(factor, torch.Tensor) else factor
        torch._foreach_mul_([torch.ones(2, 2, dtype=torch.int32, device=device) for _ in range(2)], other)

    assert "can't be cast to the desired output type Int" in str(check_refused(program, device))


@pytest.mark.parametrize("number", [True, [True, False], 2, 1.5], ids=str)
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32, torch.float16], ids=str)
@pytest.mark.parametrize("name", ["add", "maximum", "minimum", "mul", "pow"])
def test_lists_and_numbers_have_the_dtypes_of_the_elements(
    name: str, dtype: torch.dtype, number: object, device: torch.device, mode: str
) -> None:
    """PyTorch's meta kernels differ from its kernels, and maxima of booleans and numbers do not exist."""

    def program(device: torch.device) -> object:
        tensors = [torch.tensor([1, 0, 1], device=device).to(dtype), torch.ones(2, 2, device=device).to(dtype)]
        return list(getattr(torch, f"_foreach_{name}")(tensors, number))

    is_bool = isinstance(number, list) or number is True
    if name in ("maximum", "minimum") and dtype is torch.bool and is_bool:
        check_refused(program, device)
    else:
        check(program, device)
