"""Kernels of PyTorch's CPU that its lists of operators lack."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import check

aten = torch.ops.aten


def on(device: torch.device, *sizes: tuple[int, ...]) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator, dtype=torch.float64).to(device).requires_grad_() for size in sizes]


@pytest.mark.parametrize("dims", [2, 3])
def test_convolutions(dims: int, device: torch.device) -> None:
    ones, twos = [1] * dims, [2] * dims

    def program(device: torch.device) -> object:
        x, weight, bias = on(device, (2, 3, *[7] * dims), (4, 3, *[3] * dims), (4,))
        slow = {2: torch._C._nn.thnn_conv2d, 3: torch._C._nn.slow_conv3d}[dims](x, weight, [3] * dims, bias, twos, ones)
        dilated = {2: aten.slow_conv_dilated2d, 3: aten.slow_conv_dilated3d}[dims]
        result = slow.sum() + dilated(x, weight, [3] * dims, bias, ones, ones, twos).square().sum()
        result.backward()
        return result, x.grad, weight.grad, bias.grad

    check(program, device)


@pytest.mark.parametrize("dims", [2, 3])
def test_transposed_convolutions(dims: int, device: torch.device) -> None:
    transposed = {2: torch._C._nn.slow_conv_transpose2d, 3: torch._C._nn.slow_conv_transpose3d}[dims]

    def program(device: torch.device) -> object:
        x, weight, bias = on(device, (2, 3, *[5] * dims), (3, 4, *[3] * dims), (4,))
        return transposed(x, weight, [3] * dims, bias, [2] * dims, [1] * dims, [1] * dims).detach()

    check(program, device)


def test_small_ones(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x, y = (each.detach() for each in on(device, (3, 4), (3, 4)))
        coefficients = on(device, (2, 3))[0].detach()
        return aten._add_relu(x, y, alpha=2), aten._compute_linear_combination(x, coefficients), aten.dequantize(x)

    check(program, device)


def test_what_dropout_keeps_is_scaled(device: torch.device) -> None:
    x, mask = torch.randn(3, 4, device=device), torch.tensor([0, 1, 1, 0], dtype=torch.uint8, device=device)
    torch.testing.assert_close(aten._masked_scale(x, mask, 2.0), 2 * x * mask)


@pytest.mark.parametrize("ends", [[3, 3, 15, 20], [0, 5, 9, 17], [20, 20, 20, 20]], ids=str)
@pytest.mark.parametrize("is_compiled", [False, True])
def test_products_in_groups(is_compiled: bool, ends: list[int], device: torch.device, fresh_dynamo: None) -> None:
    """As in mixture-of-experts layers, with gradients: each row is multiplied by its group's matrix."""
    x, matrices = torch.randn(20, 8), torch.randn(4, 8, 16)
    weights = torch.randn(ends[-1], 16)

    def product(x: Tensor, matrices: Tensor, ends: Tensor) -> Tensor:
        return torch.nn.functional.grouped_mm(x, matrices, offs=ends)

    def program(device: torch.device) -> object:
        given = [each.detach().clone().to(device).requires_grad_() for each in (x, matrices)]
        called = torch.compile(product) if is_compiled and device.type != "cpu" else product
        result = called(*given, torch.tensor(ends, dtype=torch.int32, device=device))[: ends[-1]]
        (result * weights.to(device)).sum().backward()
        return result, given[0].grad[: ends[-1]], given[1].grad

    results, expected = program(device), program(torch.device("cpu"))
    for one, other in zip(results, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-4)
