"""Factorizations and diagonals of matrices whose sizes change: after a few sizes nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.engine.settling import SIZES, check_that_it_settles
from tests.helpers import check

pytestmark = pytest.mark.usefixtures("changing_sizes")


def eye_like(x: Tensor) -> Tensor:
    return torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)


def columns(x: Tensor, number: int) -> Tensor:
    """Matrices with as many columns, which do not change."""
    return (x.sum(-1, keepdim=True) * torch.arange(1.0, number + 1, device=x.device)).sin()


def positive(x: Tensor) -> Tensor:
    return x @ x.mT / x.shape[-1] + eye_like(x)


def process(x: Tensor) -> Tensor:
    """The likelihood of a Gaussian process."""
    points, values = x[0, :, 0], x[1, :, 0]
    kernel = torch.exp(-(points[:, None] - points[None]).square()) + 0.3 * eye_like(x)
    factor = torch.linalg.cholesky(kernel)
    fit = torch.cholesky_solve(values[:, None], factor).squeeze(-1)
    return (fit * values).sum() + 2 * factor.diagonal().log().sum()


def normal(x: Tensor) -> Tensor:
    mean = torch.zeros(x.shape[-1], device=x.device)
    return torch.distributions.MultivariateNormal(mean, covariance_matrix=positive(x)).log_prob(x[:, 0])


def cholesky(x: Tensor) -> Tensor:
    return torch.linalg.cholesky(positive(x), upper=True) + torch.cholesky_inverse(torch.linalg.cholesky(positive(x)))


def triangular(x: Tensor) -> Tensor:
    factor = x.tril() * 0.1 + 2 * eye_like(x)
    left = torch.linalg.solve_triangular(factor, columns(x, 3), upper=False)
    right = torch.linalg.solve_triangular(factor.mT, columns(x, 4).mT, upper=True, left=False)
    unit = torch.linalg.solve_triangular(factor, x, upper=False, unitriangular=True)
    return left.sum() * right.sum() + unit


def solved(x: Tensor) -> Tensor:
    matrix = positive(x)
    return torch.linalg.solve(matrix, x) + torch.linalg.solve(matrix, x[..., 0])[..., None] + torch.linalg.inv(matrix)


def determinants(x: Tensor) -> Tensor:
    return torch.linalg.det(x * 0.2) + torch.linalg.slogdet(positive(x)).logabsdet


def lower_and_upper(x: Tensor) -> Tensor:
    factors, pivots = torch.linalg.lu_factor(x + 3 * eye_like(x))
    return torch.linalg.lu_solve(factors, pivots, columns(x, 3)).sum() + torch.lu_unpack(factors, pivots).U


def spectrum(x: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(positive(x))
    return values + (vectors * values.sqrt().unsqueeze(-2) @ vectors.mT).sum(-1)


def tall(x: Tensor) -> Tensor:
    q, r = torch.linalg.qr(columns(x, 4))
    return (q @ r.abs()).sum(-1) + torch.linalg.pinv(columns(x, 4)).sum(-2)


def exponential(x: Tensor) -> Tensor:
    return torch.linalg.matrix_exp(x.detach() * 0.1) * x


def singular(x: Tensor) -> Tensor:
    return torch.linalg.svdvals(x.detach()) * x[..., 0] + torch.linalg.svdvals(columns(x, 7).detach()).sum()


def diagonals(x: Tensor) -> Tensor:
    return torch.diag_embed(x.diagonal(2, -2, -1).tanh()).sum(-1).sum() * x.diagonal(0, -2, -1)


def written_diagonals(x: Tensor) -> Tensor:
    y = x * 2
    y.diagonal(0, -2, -1).add_(1.5)
    y[0].fill_diagonal_(3.0)
    return y


@pytest.mark.parametrize("offset", [-1, 0, 1])
def test_diagonals_of_a_size_that_another_tensor_has(offset: int, device: torch.device) -> None:
    """Rows and columns then have room for more elements, of which there are none at the end of the matrix."""
    other = torch.zeros(2, 5).to(device)
    torch.tpu.mark_dynamic(other, 0, max=8)
    other += 1

    def program(device: torch.device) -> list[Tensor]:
        x = torch.arange(24.0).reshape(2, 3, 4).to(device)
        y = x[1].diagonal(offset)[-2:]
        before = y.clone()
        y.mul_(10)
        x[0].diagonal(offset)[:2].add_(before)
        return [x, y, before]

    check(program, device)
    assert other.cpu().eq(1).all()


PROGRAMS = [
    process,
    normal,
    cholesky,
    triangular,
    solved,
    determinants,
    lower_and_upper,
    spectrum,
    tall,
    exponential,
    singular,
    diagonals,
    written_diagonals,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_matrices_settle(program: Callable[[Tensor], Tensor], device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    check_that_it_settles(program, device, (torch.randn(2, size, size) for size in SIZES), rtol=2e-3)


@pytest.mark.parametrize("program", [process, diagonals])
def test_matrices_settle_in_fused(program: Callable[[Tensor], Tensor], device: torch.device) -> None:
    torch.tpu.set_eager_mode("fused")
    check_that_it_settles(program, device, (torch.randn(2, size, size) for size in SIZES), rtol=2e-3)


def at_once(call: Callable[..., Tensor], *args: Tensor) -> None:
    call(*args)
    torch.tpu.synchronize()


def test_errors_say_the_order_within_the_matrix(device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    for size in (12, 17, 14):
        x = torch.eye(size)
        x[size - 2, size - 2] = -1
        on_device = x.to(device)
        with pytest.raises(torch.linalg.LinAlgError, match=f"the leading minor of order {size - 1} is not positive"):
            at_once(torch.linalg.cholesky, on_device)
        no_inverse = x.clamp(min=0).to(device)
        with pytest.raises(torch.linalg.LinAlgError, match=f"The diagonal element {size - 1} is zero"):
            at_once(torch.linalg.inv, no_inverse)


def test_pivots_beyond_the_matrix_are_refused(device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    for size in (12, 17, 14):
        factors, pivots = torch.eye(size).to(device), torch.full((size,), size + 1, dtype=torch.int32).to(device)
        with pytest.raises(RuntimeError, match="smaller or equal to LU.size"):
            at_once(torch.linalg.lu_solve, factors, pivots, factors)


def test_pivots_may_have_padding_that_the_matrix_does_not_have(device: torch.device) -> None:
    factors, pivots = torch.linalg.lu_factor(torch.randn(3, 3))
    on_device = [each.to(device) for each in (factors, pivots)]
    torch.tpu.mark_dynamic(on_device[1], 0, max=8)
    solution = torch.linalg.lu_solve(on_device[0], on_device[1], torch.ones(3, 2, device=device))
    torch.testing.assert_close(solution.cpu(), torch.linalg.lu_solve(factors, pivots, torch.ones(3, 2)))
    permutation = torch.lu_unpack(on_device[0], on_device[1])[0]
    torch.testing.assert_close(permutation.cpu(), torch.lu_unpack(factors, pivots)[0])


def test_only_one_triangle_is_read(device: torch.device) -> None:
    for size in (12, 17, 14):
        x = positive(torch.randn(size, size))
        other = torch.full_like(x, torch.nan).triu(1)

        def values(device: torch.device, x: Tensor = x, other: Tensor = other) -> list[Tensor]:
            given = x.to(device).tril() + other.to(device)
            return [torch.linalg.eigvalsh(given), torch.linalg.cholesky(given)]

        check(values, device)
