"""Rows of crates/aten/src/ops/linalg/eig.rs."""

import math

import pytest
import torch
from torch import Tensor

from tests.operators.samples import samples

test_samples = samples(
    "linalg.eig",
    "linalg.eigvals",
)

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
REAL = DTYPES[:2]


def random(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def eig(a: Tensor, device: torch.device) -> tuple[Tensor, Tensor]:
    values, vectors = torch.linalg.eig(a.to(device))
    return values.cpu(), vectors.cpu()


def distances(values: Tensor, expected: Tensor) -> Tensor:
    """The distance of each value of both from the nearest of the other, as sets."""
    apart = (values.unsqueeze(-1) - expected.unsqueeze(-2)).abs()
    return torch.cat([apart.amin(-1), apart.amin(-2)], -1)


def check_vectors(a: Tensor, values: Tensor, vectors: Tensor, limit: float = 20) -> None:
    """Vectors of length one with a real largest component, for each value of each matrix."""
    epsilon = torch.finfo(a.dtype).eps
    size = torch.linalg.matrix_norm(a).unsqueeze(-1).unsqueeze(-1)
    residual = (a.to(vectors.dtype) @ vectors - vectors * values.unsqueeze(-2)) / torch.where(size == 0, 1, size)
    assert residual.abs().max() <= limit * epsilon, residual.abs().max() / epsilon
    torch.testing.assert_close(vectors.norm(dim=-2), torch.ones_like(values.real), rtol=0, atol=20 * epsilon)
    largest = vectors.abs().amax(-2, keepdim=True)
    is_largest = vectors.abs() >= largest * (1 - 4 * epsilon)
    assert (is_largest & (vectors.imag == 0)).any(-2).all()


def check_conjugates(values: Tensor, vectors: Tensor) -> None:
    """Values and vectors of real matrices are exactly real, or exact pairs, the positive imaginary part first."""
    for each, of_each in zip(values.flatten(0, -2), vectors.flatten(0, -3), strict=True):
        first = (each.imag > 0).nonzero().flatten()
        second = (each.imag < 0).nonzero().flatten()
        assert torch.equal(second, first + 1)
        assert torch.equal(each[second], each[first].conj())
        assert torch.equal(of_each[:, second], of_each[:, first].conj())
        assert (of_each[:, each.imag == 0].imag == 0).all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 2, 2), (1, 3, 3), (2, 3, 8, 8), (1, 33, 33)], ids=str)
def test_values_and_vectors(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    a = random(*shape, dtype=dtype)
    values, vectors = eig(a, device)
    check_vectors(a, values, vectors)
    if not dtype.is_complex:
        check_conjugates(values, vectors)
    # Well-conditioned eigenvalues: those of a matrix that is nearly normal.
    q, _ = torch.linalg.qr(a)
    a = q @ torch.diag_embed(torch.arange(1.0, shape[-1] + 1).to(dtype)) @ q.mH + 0.05 * a
    precise = torch.linalg.eigvals(a.to(torch.complex128))
    limit = 10 * shape[-1] * torch.finfo(dtype).eps
    assert distances(torch.linalg.eigvals(a.to(device)).cpu(), precise).max() <= limit * shape[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex128], ids=str)
def test_larger_matrices(device: torch.device, dtype: torch.dtype) -> None:
    a = random(2, 97, 97, dtype=dtype)
    values, vectors = eig(a, device)
    check_vectors(a, values, vectors)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_matrices_and_no_elements(device: torch.device, dtype: torch.dtype) -> None:
    for shape in ((0, 0), (3, 0, 0), (0, 4, 4)):
        values, vectors = eig(torch.zeros(shape, dtype=dtype), device)
        assert (values.shape, vectors.shape) == (shape[:-1], shape)
        assert torch.linalg.eigvals(torch.zeros(shape, dtype=dtype, device=device)).shape == shape[:-1]


def companion(*roots: float) -> Tensor:
    coefficients = torch.ones(1, dtype=torch.float64)
    zero = torch.zeros(1, dtype=torch.float64)
    for root in roots:
        coefficients = torch.cat([coefficients, zero]) - root * torch.cat([zero, coefficients])
    result = torch.diag(torch.ones(len(roots) - 1, dtype=torch.float64), -1)
    result[0] = -coefficients[1:]
    return result


def matrices_with_real_spectra() -> dict[str, Tensor]:
    a = random(8, 8, dtype=torch.float64)
    to_seven = torch.arange(1.0, 8, dtype=torch.float64)
    two_rows = [[[1.0, 2], [3, 2]], [[2.0, 0], [3, 2]], [[0.0, 4], [1, 0]], [[-1.0, -1], [-1, 3]]]
    return {
        "upper triangle": a.triu(),
        "lower triangle": a.tril(),
        "symmetric": a + a.T,
        # A diagonal matrix makes it symmetric.
        "nearly symmetric": torch.diag(to_seven, 1) + torch.diag(to_seven * 3, -1),
        "companion": companion(*range(1, 9)),
        "blocks": torch.block_diag(*torch.tensor(two_rows, dtype=torch.float64)),
        "zeros": torch.zeros_like(a),
    }


@pytest.mark.parametrize("dtype", REAL, ids=str)
def test_real_eigenvalues_have_no_imaginary_part(device: torch.device, dtype: torch.dtype) -> None:
    named = matrices_with_real_spectra()
    a = torch.stack(list(named.values()))
    values, vectors = eig(a.to(dtype), device)
    check_vectors(a.to(dtype), values, vectors)
    assert (vectors.imag == 0).all()
    alone = torch.linalg.eigvals(a.to(device, dtype)).cpu()
    expected = torch.linalg.eigvals(a).real.sort(-1).values
    for found in (values, alone):
        assert (found.imag == 0).all()
        errors = (found.real.sort(-1).values - expected).abs().amax(-1) / torch.finfo(dtype).eps
        for name, error in zip(named, errors.tolist(), strict=True):
            assert error <= (1e8 if name == "companion" else 1e3), name


def special(dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
    """Matrices of 12 rows and their eigenvalues."""

    def unit(angles: Tensor) -> Tensor:
        return torch.polar(torch.ones_like(angles), angles)

    one, ones = torch.eye(12, dtype=dtype), torch.ones(12, dtype=torch.complex128)
    angles = torch.tensor([0.1, 0.5, 1.0, 2.0, 2.5, 3.0], dtype=torch.float64)
    pairs = torch.stack([angles.cos(), -angles.sin(), angles.sin(), angles.cos()], -1).reshape(6, 2, 2)
    blocks = [random(size, size, dtype=dtype, seed=size) for size in (4, 1, 5, 2)]
    mixed = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    roots = unit(torch.arange(12, dtype=torch.float64) * (2 * math.pi / 12))
    return {
        "zeros": (one * 0, ones * 0),
        "identity": (one, ones),
        "cyclic shift": (one.roll(1, 0), roots),
        "cyclic shift back": (one.roll(-1, 0), roots),
        "two cycles": (one.roll(2, 0), roots.square()),
        "reversal": (one.flip(0), torch.cat([ones[:6], -ones[:6]])),
        "Jordan block": (one * 2 + torch.diag(one[0, :1].expand(11), 1), ones * 2),
        "Jordan block below": (one * 2 + torch.diag(one[0, :1].expand(11), -1), ones * 2),
        "nilpotent": (torch.diag(one[0, :1].expand(11), 1), ones * 0),
        "permuted triangle": (
            random(12, 12, dtype=dtype).triu(1)[mixed][:, mixed] + one * 3,
            ones * 3,
        ),
        "rotations": (torch.block_diag(*pairs).to(dtype), torch.cat([unit(angles), unit(-angles)])),
        "decoupled blocks": (
            torch.block_diag(*blocks),
            torch.cat([torch.linalg.eigvals(each.to(torch.complex128)) for each in blocks]),
        ),
        "ones": (torch.ones_like(one), torch.cat([ones[:1] * 12, ones[1:] * 0])),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_matrices(device: torch.device, dtype: torch.dtype) -> None:
    """As a batch, whose matrices take different numbers of steps."""
    named = special(dtype)
    a = torch.stack([matrix for matrix, _ in named.values()])
    expected = torch.stack([own for _, own in named.values()])
    values, vectors = eig(a, device)
    check_vectors(a, values, vectors)
    if not dtype.is_complex:
        check_conjugates(values, vectors)
    for found in (values, torch.linalg.eigvals(a.to(device)).cpu()):
        errors = distances(found, expected).amax(-1) / torch.finfo(dtype).eps
        assert (errors <= 100).all(), dict(zip(named, errors.tolist(), strict=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_batch_of_several_scales(device: torch.device, dtype: torch.dtype) -> None:
    """Each matrix has the eigenvalues that it has alone."""
    scale = torch.tensor([1.0, 1e-20, 1e15, 1.0], dtype=torch.float64).reshape(2, 2, 1, 1)
    a = random(2, 2, 8, 8, dtype=dtype) * scale.to(dtype)
    values, vectors = eig(a, device)
    check_vectors(a, values, vectors)
    expected = torch.linalg.eigvals(a.to(torch.complex128))
    assert (distances(values, expected) / scale.squeeze(-1)).max() <= 1e3 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_and_columns_of_very_different_scales(device: torch.device, dtype: torch.dtype) -> None:
    """Scales that balancing removes take no digits of the eigenvalues."""
    a = random(8, 8, dtype=dtype)
    scale = 2.0 ** torch.arange(-28, 28, 7).to(dtype)
    expected = torch.linalg.eigvals(a.to(torch.complex128))
    a = scale.unsqueeze(1) * a / scale
    values, vectors = eig(a, device)
    check_vectors(a, values, vectors)
    limit = 500 * torch.finfo(dtype).eps
    assert distances(values, expected).max() <= limit
    assert distances(torch.linalg.eigvals(a.to(device)).cpu(), expected).max() <= limit


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_numbers_that_are_not_finite(device: torch.device, dtype: torch.dtype) -> None:
    a = random(3, 8, 8, dtype=dtype)
    a[0, 2, 3] = math.nan
    a[1, 0, 0] = math.inf
    values = torch.linalg.eigvals(a.to(device)).cpu()
    assert not values[:2].isfinite().any()
    assert distances(values[2], torch.linalg.eigvals(a[2])).max() <= 1e3 * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=str)
def test_gradients(device: torch.device, dtype: torch.dtype) -> None:
    def gradient(device: torch.device) -> Tensor:
        a = random(4, 4, dtype=dtype).to(device).requires_grad_()
        values, vectors = torch.linalg.eig(a)
        # It depends neither on the order of the eigenvalues nor on the phase of their vectors.
        loss = (values.square() * vectors.abs().square().sum(-2) * (vectors.abs()[0] + 1)).sum().abs()
        (result,) = torch.autograd.grad(loss + values.abs().sum(), a)
        return result.cpu()

    torch.testing.assert_close(gradient(device), gradient(torch.device("cpu")))
