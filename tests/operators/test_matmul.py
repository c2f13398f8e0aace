"""Rows of crates/aten/src/ops/linalg/matmul.rs."""

import math

import pytest
import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "__rmatmul__",
    "addbmm",
    "addmm",
    "addmm.decomposed",
    "addmv",
    "addr",
    "baddbmm",
    "bmm",
    "bmm.triton_optimized",
    "corrcoef",
    "cov",
    "dot",
    "einsum",
    "inner",
    "kron",
    "linalg.matrix_power",
    "linalg.multi_dot",
    "linalg.vecdot",
    "matmul",
    "mm",
    "mv",
    "nn.functional.bilinear",
    "nn.functional.linear",
    "outer",
    "sparse.mm.reduce",
    "sparse.sampled_addmm",
    "tensordot",
    "torch._scaled_mm",
    "torch._scaled_mm_v2",
    "vdot",
)


@pytest.mark.usefixtures("constant_sizes")
@pytest.mark.each_mode
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("batch", [(3,), (2, 3)])
def test_few_rows_times_transposed_matrices(batch: tuple[int, ...], rows: int, device: torch.device, mode: str) -> None:
    """Rotated points, for example. Results that several operators use have another layout in XLA's programs."""

    def program(device: torch.device) -> list[torch.Tensor]:
        points = torch.linspace(-3, 1, math.prod(batch) * 6 * rows).view(*batch, 6, rows).to(device) * 1.5
        squares = points.transpose(-1, -2) @ points
        product = squares @ points.transpose(-1, -2)
        return [points, squares, product, product.clone()]

    check(program, device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64])
def test_linear_combinations_are_added_to_the_result(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    torch.manual_seed(0)
    matrices, coefficients = torch.randn(3, 2, 2, dtype=dtype), torch.rand(2, 3)

    def added(on: torch.device) -> list[torch.Tensor]:
        out = torch.ones(2, 2, 2, dtype=dtype, device=on)
        torch._compute_linear_combination(matrices.to(on), coefficients.to(on), out=out)
        return [out, torch._compute_linear_combination(matrices.to(on), coefficients.to(on))]

    check(added, device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_products_of_long_vectors_keep_their_digits(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    torch.manual_seed(0)
    a = torch.rand(10**6, dtype=dtype)
    wide = a.to(torch.complex128 if dtype.is_complex else torch.float64)
    exact = torch.dot(wide, wide).to(dtype)
    result = torch.dot(a.to(device), a.to(device)).cpu()
    torch.testing.assert_close(result, exact, rtol=max(1e-6, torch.finfo(dtype).eps), atol=0)
