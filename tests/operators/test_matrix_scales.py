"""Factorizations of matrices whose squares overflow or underflow.

Each result for `a * 2**n` is the one for `a`, with its scale: a power of two changes no digit.
"""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, linalg
from torchtpu._C import set_sizes

# Powers of two whose squares are still in range, and those whose squares are not.
EXPONENTS = {torch.float32: (-100, -33, 33, 100), torch.float64: (-800, -270, 270, 800)}
SHAPES = ((5, 5), (2, 4, 7))


def results(a: Tensor) -> dict[str, list[tuple[Tensor, int]]]:
    """Each result with the power of the scale of `a` that it has."""
    b = torch.ones(*a.shape[:-1], 2, dtype=a.dtype, device=a.device)
    u, s, vh = linalg.svd(a)
    found = {
        "svd": [(u, 0), (s, 1), (vh, 0)],
        "svdvals": [(linalg.svdvals(a), 1)],
        "pinv": [(linalg.pinv(a), -1)],
        "matrix_rank": [(linalg.matrix_rank(a), 0)],
        "lstsq": [(linalg.lstsq(a, b).solution, -1)],
        "qr": list(zip(linalg.qr(a), (0, 1), strict=True)),
    }
    if a.shape[-2] == a.shape[-1]:
        symmetric = a + a.mT
        values, vectors = linalg.eig(a)
        found |= {
            "eigh": list(zip(linalg.eigh(symmetric), (1, 0), strict=True)),
            "eigvalsh": [(linalg.eigvalsh(symmetric), 1)],
            "eig": [(values, 1), (vectors, 0)],
            "eigvals": [(linalg.eigvals(a), 1)],
            "ldl_solve": [(linalg.ldl_solve(*linalg.ldl_factor(symmetric), b), -1)],
        }
    return found


@pytest.mark.parametrize("sizes", ["dynamic", "padded"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.float64, torch.complex128])
def test_scales(device: torch.device, sizes: str, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    set_sizes(sizes)
    generator = torch.Generator().manual_seed(2)
    a = torch.randn(shape, dtype=dtype, generator=generator)
    expected = results(a.to(device))
    for name, parts in results(a).items():
        for (one, _), (other, _) in zip(parts, expected[name], strict=True):
            torch.testing.assert_close(other.abs().sum().cpu(), one.abs().sum(), rtol=1e-2, atol=0)
    for exponent in EXPONENTS[dtype.to_real()]:
        scale = 2.0**exponent
        for name, parts in results((a * scale).to(device)).items():
            for (scaled, power), (plain, _) in zip(parts, expected[name], strict=True):
                assert torch.equal(scaled.cpu(), plain.cpu() * scale**power), (name, exponent)


@pytest.mark.parametrize("function", [linalg.svdvals, linalg.eigvalsh, linalg.eigvals, linalg.pinv])
def test_a_batch_of_several_scales(device: torch.device, function: Callable[[Tensor], Tensor]) -> None:
    """Each matrix has its own scale. The values of a matrix of zeros are zero."""
    a = torch.randn(4, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    batch = torch.stack([a * 1e-200, a, a * 0, a * 1e200])
    torch.testing.assert_close(
        function(batch.to(device)).abs().cpu().sort().values, function(batch).abs().sort().values, rtol=1e-9, atol=0
    )
