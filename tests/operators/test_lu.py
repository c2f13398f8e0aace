"""Rows of crates/aten/src/ops/linalg/lu.rs."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import check, check_refused
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


@pytest.mark.parametrize("is_batch", [False, True])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: torch.linalg.cholesky_ex(x, check_errors=True),
        lambda x: torch.linalg.inv_ex(x, check_errors=True),
        lambda x: torch.linalg.lu_factor_ex(x, check_errors=True),
        lambda x: torch.linalg.solve_ex(x, x, check_errors=True),
        lambda x: torch.linalg.solve_ex(x, x[..., 0], check_errors=True),
    ],
    ids=["cholesky_ex", "inv_ex", "lu_factor_ex", "solve_ex", "solve_ex of a vector"],
)
def test_check_errors_names_the_matrix_and_its_element(
    call: Callable[[Tensor], tuple[Tensor, ...]], is_batch: bool, device: torch.device
) -> None:
    def program(device: torch.device) -> Tensor:
        singular = torch.diag(torch.tensor([1.0, 0.0, 2.0], device=device))
        batch = torch.stack([torch.eye(3, device=device), singular, singular])[None]
        return call(batch if is_batch else singular)[0].cpu()

    with pytest.raises(RuntimeError) as on_cpu:
        program(torch.device("cpu"))
    with pytest.raises(on_cpu.type, match=re.escape(str(on_cpu.value))):
        program(device)


@pytest.mark.each_mode
def test_check_errors_raises_at_the_call(device: torch.device, mode: str) -> None:
    """A user who asks for errors waits for the result, in Fused too."""

    def factor(device: torch.device) -> Tensor:
        return torch.linalg.cholesky_ex(-torch.eye(3, device=device), check_errors=True)[0]

    check_refused(factor, device)
    torch.tpu.synchronize()


def test_check_errors_of_matrices_that_have_factors(device: torch.device) -> None:
    def program(device: torch.device) -> tuple[Tensor, ...]:
        x = torch.tensor([[2.0, 0.5], [0.5, 1.0]], device=device)
        return (*torch.linalg.inv_ex(x, check_errors=True), *torch.linalg.cholesky_ex(x, check_errors=True))

    check(program, device)
