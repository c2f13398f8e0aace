"""Rows of crates/aten/src/ops/linalg/spectral.rs."""

import math

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "linalg.cond",
    "linalg.eigh",
    "linalg.eigvalsh",
    "linalg.lstsq",
    "linalg.lstsq.grad_oriented",
    "linalg.matrix_rank",
    "linalg.matrix_rank.hermitian",
    "linalg.matrix_sqrth",
    "linalg.pinv",
    "linalg.pinv.hermitian",
    "linalg.pinv.singular",
    "linalg.svd",
    "linalg.svdvals",
    "matrix_exp",
    "pca_lowrank",
    "pinverse",
    "svd",
    "svd_lowrank",
)


def test_solutions_of_lstsq_are_column_major(device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        a, b = torch.randn(2, 3, 4).to(device), torch.randn(2, 3, 2).to(device)
        square = torch.linalg.lstsq(a[..., :3] + 4 * torch.eye(3, device=device), b).solution
        return [torch.linalg.lstsq(a, b).solution, square, torch.linalg.lstsq(a[0], b[0]).solution]

    check(program, device)


# A vector for each matrix has exactly the matrices' sizes without their last. Other shapes of one dimension less are
# matrices, and their first sizes a batch.
LSTSQ_SHAPES = [
    ([1, 3, 2], [5, 3, 4]),
    ([5, 3, 2], [1, 3, 4]),
    ([2, 3, 2], [2, 3]),
    ([1, 3, 2], [1, 3]),
    ([1, 3, 2], [3, 4]),
    ([3, 3, 2], [3, 4]),
    ([1, 2, 3], [2, 1]),
    ([2, 2, 3, 2], [2, 2, 3]),
]


@pytest.mark.parametrize(
    ("a", "b", "driver"),
    [(*shapes, "gelsd") for shapes in LSTSQ_SHAPES] + [(*LSTSQ_SHAPES[0], driver) for driver in ("gels", "gelsy")],
)
def test_lstsq_of_vectors_and_batches(a: list[int], b: list[int], driver: str, device: torch.device, mode: str) -> None:
    matrices, others = torch.randn(a, dtype=torch.float64), torch.randn(b, dtype=torch.float64)

    def program(device: torch.device) -> object:
        results = torch.linalg.lstsq(matrices.to(device), others.to(device), driver=driver)
        # The strides of LAPACK's solution show that its memory has room for the input's rows.
        return [each.clone(memory_format=torch.contiguous_format) for each in results]

    check(program, device)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([1, 1, 1], [3, 1]),
        ([2, 3, 2], [1, 3]),
        ([2, 3, 2], [3, 1]),
        ([1, 3, 2], [2, 3]),
        ([2, 3, 2], [3]),
        ([3, 2], [1, 3, 2]),
        ([2, 2, 3, 2], [1, 3, 1]),
        ([2, 3, 2], [5, 3, 2]),
        ([1, 1, 3, 2], [5, 3, 1]),
    ],
)
def test_lstsq_of_sizes_that_differ_is_refused(a: list[int], b: list[int], device: torch.device, mode: str) -> None:
    check_refused(lambda d: torch.linalg.lstsq(torch.ones(a, device=d), torch.ones(b, device=d)), device)


def test_lstsq_of_other_dtypes_and_drivers_is_refused(device: torch.device, mode: str) -> None:
    a, b = torch.ones(3, 2), torch.ones(3, 1)
    for other, driver in ((b.double(), None), (b.long(), None), (b, "gel"), (b, "")):
        check_refused(
            lambda d, other=other, driver=driver: torch.linalg.lstsq(a.to(d), other.to(d), driver=driver), device
        )


def large(kind: str, size: int, dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(size)
    a = torch.randn(size, size, generator=generator, dtype=dtype)
    if kind == "low rank":
        a = a[:, :7] @ a[:7]
    elif kind == "repeated":
        a = torch.block_diag(*[a[: size // 4, : size // 4]] * 4)
    elif kind == "identity":
        a = torch.eye(size, dtype=dtype)
    elif kind == "ones":
        a = torch.ones(size, size, dtype=dtype)
    elif kind == "zeros":
        a = torch.zeros(size, size, dtype=dtype)
    elif kind == "graded":
        a = a * torch.logspace(0, -30, size)
    elif kind == "glued":
        # Wilkinson's matrices side by side: many eigenvalues that nearly agree.
        diagonal = (torch.arange(size) % 21 - 10).abs()
        a = torch.diag(diagonal) + torch.diag(torch.full((size - 1,), 0.5), 1)
    return a.to(dtype)


KINDS = ("random", "low rank", "repeated", "identity", "ones", "zeros", "graded", "glued")
DTYPES = (torch.float32, torch.float64, torch.complex64, torch.complex128)
# Small matrices take another method than large ones, whose programs take seconds to compile.
SMALL = [(dtype, 48) for dtype in DTYPES]
LARGE = [(dtype, 148) for dtype in DTYPES]


def matrices_of_each_kind(size: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.stack([large(kind, size, dtype) for kind in KINDS])


def check_each(errors: torch.Tensor, limits: torch.Tensor | float) -> None:
    """No element of a matrix's errors is above its limit."""
    worst = errors.abs().flatten(1).amax(1)
    assert (worst <= limits).all(), dict(zip(KINDS, worst.tolist(), strict=True))


@pytest.mark.parametrize(("dtype", "size"), [*SMALL, *LARGE[1:3]], ids=str)
def test_eigenvectors_to_the_last_digits(device: torch.device, dtype: torch.dtype, size: int) -> None:
    a = matrices_of_each_kind(size, dtype)
    a = a + a.mH
    values, vectors = (x.cpu() for x in torch.linalg.eigh(a.to(device)))
    expected = torch.linalg.eigvalsh(a)
    norms = expected.abs().amax(1).clamp(min=1e-30)
    limit = 200 * torch.finfo(dtype).eps
    check_each(values - expected, limit * norms)
    check_each(vectors.mH @ vectors - torch.eye(size), limit)
    check_each(a @ vectors - vectors * values.unsqueeze(1), limit * norms)


@pytest.mark.parametrize(("dtype", "size"), [*SMALL, LARGE[0], LARGE[3]], ids=str)
def test_singular_vectors_to_the_last_digits(device: torch.device, dtype: torch.dtype, size: int) -> None:
    a = matrices_of_each_kind(size, dtype)
    u, s, vh = (x.cpu() for x in torch.linalg.svd(a.to(device)))
    expected = torch.linalg.svdvals(a)
    norms = expected.amax(1).clamp(min=1e-30)
    limit = 500 * torch.finfo(dtype).eps
    one = torch.eye(size)
    check_each(s - expected, limit * norms)
    check_each(u.mH @ u - one, limit)
    check_each(vh @ vh.mH - one, limit)
    check_each((u * s.unsqueeze(1)) @ vh - a, limit * norms)


def test_batches_of_large_matrices(device: torch.device) -> None:
    a = torch.stack([large(kind, 136, torch.float64) for kind in ("random", "low rank", "zeros")])
    u, s, vh = (x.cpu() for x in torch.linalg.svd(a[..., :133].to(device), full_matrices=False))
    torch.testing.assert_close(s, torch.linalg.svdvals(a[..., :133]), rtol=0, atol=1e-11)
    torch.testing.assert_close((u * s.unsqueeze(1)) @ vh, a[..., :133], rtol=0, atol=1e-11)
    h = a @ a.mT
    values, vectors = (x.cpu() for x in torch.linalg.eigh(h.to(device)))
    torch.testing.assert_close((vectors * values.unsqueeze(1)) @ vectors.mT, h, rtol=0, atol=1e-10)


@pytest.mark.parametrize("tolerance", [(), (2,), (3, 1), (4, 3, 2)], ids=str)
def test_tolerances_of_pinv(device: torch.device, tolerance: tuple[int, ...]) -> None:
    """There may be several for a matrix, and a tolerance removes the smaller singular values."""
    a = torch.diag(torch.tensor([4.0, 2.0, 1.0])).expand(2, 3, 3)
    values = torch.linspace(0.1, 0.6, max(math.prod(tolerance), 1)).reshape(tolerance)
    for tolerances in [{"rtol": values}, {"atol": values * 4}, {"atol": values, "rtol": values * 0.5}]:

        def program(d: torch.device, tolerances: dict[str, torch.Tensor] = tolerances) -> list[torch.Tensor]:
            moved = {name: each.to(d) for name, each in tolerances.items()}
            return [torch.linalg.pinv(a.to(d), hermitian=hermitian, **moved) for hermitian in (False, True)]

        check(program, device)


@pytest.mark.parametrize("shape", [(0, 5), (2, 0, 5), (0, 3, 3)], ids=str)
@pytest.mark.parametrize("hermitian", [False, True])
def test_pinv_of_nothing(device: torch.device, shape: tuple[int, ...], hermitian: bool) -> None:
    check(lambda d: torch.linalg.pinv(torch.ones(shape, device=d), hermitian=hermitian), device)
