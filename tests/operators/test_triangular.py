"""Rows of crates/aten/src/ops/linalg/triangular.rs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "cholesky_inverse",
    "cholesky_solve",
    "cross",
    "linalg.cholesky",
    "linalg.cholesky_ex",
    "linalg.cross",
    "linalg.solve_triangular",
    "triangular_solve",
)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(5,), (6, 5), (2, 3, 1), (0, 4), (2, 0)], ids=str)
def test_cholesky_ex_says_which_minor_fails(
    shape: tuple[int, ...], dtype: torch.dtype, upper: bool, device: torch.device
) -> None:
    def program(device: torch.device) -> Tensor:
        x = torch.randn(*shape, shape[-1], dtype=dtype, generator=torch.Generator().manual_seed(0))
        x = x @ x.mH + torch.eye(shape[-1])
        for at, matrix in enumerate(x.reshape(-1, *x.shape[-2:]) if x.numel() else ()):
            if at % 2 == 0:
                matrix[at % shape[-1], at % shape[-1]] -= 100
        return torch.linalg.cholesky_ex(x.to(device), upper=upper).info

    check(program, device)
