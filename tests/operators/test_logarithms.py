"""crates/aten/src/ops/elementwise/logarithms.rs: logarithms to the bases 2 and 10."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

OPERATORS: dict[str, tuple[Callable[[torch.Tensor], torch.Tensor], float]] = {
    "log2": (torch.log2, 2.0),
    "log10": (torch.log10, 10.0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_powers_of_the_base(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """Their floor is the number of digits."""
    operator, base = OPERATORS[name]
    most = int(math.log(torch.finfo(dtype).max, base) - 1e-9)
    least = math.ceil(math.log(torch.finfo(dtype).tiny, base))
    exponents = torch.arange(least, most + 1, dtype=torch.float64)
    powers = torch.tensor([base**k for k in range(least, most + 1)], dtype=torch.float64).to(dtype)
    assert torch.equal(operator(powers.to(device)).double().cpu(), exponents)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPERATORS)
def test_accuracy(name: str, dtype: torch.dtype, device: torch.device) -> None:
    operator, _ = OPERATORS[name]
    generator = torch.Generator().manual_seed(0)
    near_one = 1 + (torch.rand(20_000, generator=generator, dtype=torch.float64) - 0.5) / 4
    spread = torch.exp(torch.randn(20_000, generator=generator, dtype=torch.float64) * 3)
    x = torch.cat([near_one, spread.clamp(max=60_000)]).to(dtype)
    found, exact = operator(x.to(device)).cpu().double(), operator(x.double())
    unit = torch.finfo(dtype).eps * exact.abs()
    bound = 2.5 * unit + (1e-16 if dtype == torch.float64 else 0)
    assert ((found - exact).abs() <= bound).all(), ((found - exact).abs() / unit).max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", OPERATORS)
def test_special_values(name: str, dtype: torch.dtype, device: torch.device) -> None:
    operator, _ = OPERATORS[name]
    x = torch.tensor([0.0, -0.0, -1.0, math.inf, -math.inf, math.nan, 1.0, torch.finfo(dtype).max], dtype=dtype)
    torch.testing.assert_close(operator(x.to(device)).cpu(), operator(x), equal_nan=True, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", OPERATORS)
def test_complex_and_whole_numbers(name: str, device: torch.device) -> None:
    operator, base = OPERATORS[name]
    for dtype in (torch.complex64, torch.complex128):
        x = torch.tensor(
            [1 + 1j, base + 0j, -1 + 0j, complex(math.inf, 1), complex(math.inf, math.inf), 0j], dtype=dtype
        )
        found, expected = operator(x.to(device)).cpu(), operator(x)
        torch.testing.assert_close(torch.view_as_real(found), torch.view_as_real(expected))
    x = torch.tensor([1, 8, 10, 1000, 1024])
    torch.testing.assert_close(operator(x.to(device)).cpu(), operator(x))


@pytest.mark.parametrize("name", OPERATORS)
def test_gradient(name: str, device: torch.device) -> None:
    operator, _ = OPERATORS[name]
    x = torch.linspace(0.1, 9, 20, dtype=torch.float64)
    on_cpu, on_tpu = x.clone().requires_grad_(), x.to(device).requires_grad_()
    operator(on_cpu).sum().backward()
    operator(on_tpu).sum().backward()
    assert on_cpu.grad is not None
    assert on_tpu.grad is not None
    torch.testing.assert_close(on_tpu.grad.cpu(), on_cpu.grad)
