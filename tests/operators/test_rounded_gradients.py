"""Gradients in 16 bits that only CUDA has beside "tpu": each operator of PyTorch's formula is exact and rounds once.

In double precision these gradients differ, or are finite where a step of the formula overflows float16.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")


def rounded(x: Tensor) -> Tensor:
    """The nearest numbers of 16 bits, in double precision."""
    return torch.complex(x.real.half().double(), x.imag.half().double()) if x.is_complex() else x.half().double()


def numbers(*shape: int, scale: float = 1.0) -> Tensor:
    return rounded(torch.randn(shape, dtype=torch.complex128) * scale)


def gradient(
    function: Callable[..., Tensor], number: int, grad: Tensor, inputs: list[Tensor], device: torch.device
) -> Tensor:
    narrow = torch.complex32 if grad.is_complex() else torch.float16
    leaves = [x.to(narrow).to(device).requires_grad_() for x in inputs]
    found = torch.autograd.grad(function(*leaves), leaves[number], grad.to(narrow).to(device))[0]
    return found.cpu().to(grad.dtype)


def test_division(device: torch.device) -> None:
    x, y, grad = numbers(5, scale=3), numbers(), numbers(5)
    quotient = rounded(rounded(x / y) / y)
    expected = rounded(rounded(-grad * quotient.conj()).sum())
    assert torch.equal(gradient(torch.div, 1, grad, [x, y], device), expected)


def test_power(device: torch.device) -> None:
    x, power, grad = numbers(5, scale=6), torch.tensor(4 + 1j, dtype=torch.complex128), numbers(5)
    expected = rounded(grad * rounded(power * rounded(x.pow(power - 1))).conj())
    torch.testing.assert_close(gradient(torch.pow, 0, grad, [x, power], device), expected, rtol=2e-3, atol=0)


def test_logaddexp(device: torch.device) -> None:
    x, y, grad = numbers(8, scale=4), numbers(8, scale=4), numbers(8)
    expected = rounded(grad / rounded(1 + rounded((rounded(y - x)).exp())).conj())
    torch.testing.assert_close(gradient(torch.logaddexp, 0, grad, [x, y], device), expected, rtol=2e-3, atol=0)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_polygamma(order: int, device: torch.device) -> None:
    x, grad = rounded(torch.tensor([0.02, 0.5, 2.0])), rounded(torch.tensor([1e-3, 1.0, 1.0]))
    expected = rounded(grad * rounded(torch.polygamma(order + 1, x)))
    assert expected[0].isinf()
    found = gradient(lambda x: torch.polygamma(order, x), 0, grad, [x], device)
    torch.testing.assert_close(found, expected, rtol=2e-3, atol=0)
