"""Rows of crates/aten/src/ops/foreach.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check_refused
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
