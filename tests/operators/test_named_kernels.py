"""Kernels that PyTorch's CPU has, and PyTorch's lists of operators lack."""

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
