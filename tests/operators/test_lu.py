"""Rows of crates/aten/src/ops/linalg/lu.rs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "linalg.det",
    "linalg.inv",
    "linalg.inv_ex",
    "linalg.lu",
    "linalg.lu_factor",
    "linalg.lu_factor_ex",
    "linalg.lu_solve",
    "linalg.slogdet",
    "linalg.solve",
    "linalg.solve_ex",
    "linalg.tensorinv",
    "linalg.tensorsolve",
    "logdet",
    "lu",
    "lu_solve",
    "lu_unpack",
)


@pytest.mark.parametrize(
    "solve",
    [
        lambda x, out: torch.cholesky_inverse(x, out=out),
        lambda x, out: torch.linalg.inv(x, out=out),
        lambda x, out: torch.linalg.ldl_solve(*torch.linalg.ldl_factor(x), x, out=out),
        lambda x, out: torch.linalg.lu_solve(*torch.linalg.lu_factor(x), x, out=out),
    ],
    ids=["cholesky_inverse", "inv", "ldl_solve", "lu_solve"],
)
def test_an_out_argument_that_is_a_part_of_a_matrix(
    solve: Callable[[Tensor, Tensor], Tensor], device: torch.device
) -> None:
    def program(device: torch.device) -> Tensor:
        base = torch.zeros(4, 5, device=device)
        solve(torch.tensor([[2.0, 0.5], [0.5, 1.0]], device=device), base[1:3, 2:4])
        return base

    check(program, device)
