"""Rows of crates/aten/src/ops/linalg/qr.rs."""

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "geqrf",
    "linalg.householder_product",
    "linalg.qr",
    "ormqr",
)


def test_geqrf_is_column_major(device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        shapes = ((3, 3), (2, 4, 3), (0, 3), (2, 0, 3))
        torch.manual_seed(0)
        return [each for shape in shapes for each in torch.geqrf(torch.randn(shape).to(device))]

    check(program, device)


def _hard(kind: str, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(shape, dtype=dtype, generator=generator)
    columns = shape[-1]
    tiny = torch.finfo(dtype).smallest_normal ** 0.8
    if kind == "repeated columns":
        return a[..., :1].repeat(*[1] * (len(shape) - 1), columns)
    if kind == "low rank":
        return a[..., :1] @ torch.randn(1, columns, dtype=dtype, generator=generator) + a[..., -1:]
    if kind == "squares underflow":
        return a * tiny
    if kind == "squares overflow":
        return a / tiny
    if kind == "different columns":
        return a * torch.logspace(-30, 30, columns).to(dtype)
    if kind == "zero columns":
        return a * (torch.arange(columns) % 2)
    assert kind == "real and upper"
    return a.real.triu().to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (3, 7, 4), (4, 7), (2, 150, 140), (30, 70)])
@pytest.mark.parametrize(
    "kind",
    [
        "repeated columns",
        "low rank",
        "squares underflow",
        "squares overflow",
        "different columns",
        "zero columns",
        "real and upper",
    ],
)
def test_columns_of_all_scales(device: torch.device, dtype: torch.dtype, shape: tuple[int, ...], kind: str) -> None:
    """Q is unitary, R is upper triangular, and each column of their product is right relative to its own scale."""
    a = _hard(kind, shape, dtype)
    q, r = (each.cpu() for each in torch.linalg.qr(a.to(device)))
    packed, scales = torch.geqrf(a.to(device))
    other_q = torch.linalg.householder_product(packed[..., : q.shape[-1]], scales).cpu()
    assert torch.equal(r, r.triu())
    close = 50 * torch.finfo(dtype).eps
    for each in (q, other_q):
        product = each.mH @ each
        torch.testing.assert_close(product, torch.eye(q.shape[-1], dtype=dtype).expand_as(product), rtol=0, atol=close)
    scale = a.abs().amax(-2, keepdim=True)
    scale = torch.where(scale == 0, 1, scale)
    torch.testing.assert_close(q @ (r / scale), a / scale, rtol=0, atol=close)


def test_geqrf_takes_matrices(device: torch.device) -> None:
    for sizes in ((3,), ()):
        error = check_refused(lambda d, sizes=sizes: torch.geqrf(torch.ones(sizes, device=d)), device)
        assert "must have at least 2 dimensions" in str(error)
