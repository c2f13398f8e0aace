"""Rows of crates/aten/src/ops/elementwise/special.rs."""

from __future__ import annotations

import mpmath
import pytest
import torch

from tests.operators.samples import samples

test_samples = samples(
    "digamma",
    "erf",
    "erfc",
    "erfinv",
    "igamma",
    "igammac",
    "lgamma",
    "mvlgamma.mvlgamma_p_1",
    "mvlgamma.mvlgamma_p_3",
    "mvlgamma.mvlgamma_p_5",
    "polygamma.polygamma_n_0",
    "polygamma.polygamma_n_1",
    "polygamma.polygamma_n_2",
    "polygamma.polygamma_n_3",
    "polygamma.polygamma_n_4",
    "special.entr",
    "special.erfcx",
    "special.log_ndtr",
    "special.ndtr",
    "special.ndtri",
    "special.polygamma.special_polygamma_n_0",
    "special.zeta",
)


def test_incomplete_gamma_functions_over_a_grid(device: torch.device) -> None:
    """Elements that need few steps of the continued fraction keep their digits while others need hundreds."""
    values = torch.exp(torch.linspace(-4, 4, 200))
    a, x = values[:, None], values
    for function in (torch.igamma, torch.igammac):
        found, exact = function(a.to(device), x.to(device)).cpu().double(), function(a.double(), x.double())
        assert (found - exact).abs().max() < 4e-6


def test_incomplete_gamma_functions_of_doubles(device: torch.device) -> None:
    """Values of mpmath with 40 digits: those of the CPU differ by up to 4e-10."""
    a = torch.tensor([0.5, 2.0, 12.0, 30.0, 50.0], dtype=torch.float64)
    x = torch.tensor([0.75, 8.0, 15.0, 28.0, 54.0], dtype=torch.float64)
    lower = [0.77932863808015321, 0.99698083634887739, 0.81524820097606857, 0.37738969431439764, 0.72512153404158205]
    expected = torch.tensor(lower, dtype=torch.float64)
    found = torch.igamma(a.to(device), x.to(device)).cpu()
    torch.testing.assert_close(found, expected, rtol=2e-15, atol=0)
    torch.testing.assert_close(torch.igammac(a.to(device), x.to(device)).cpu(), 1 - expected, rtol=1e-13, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_zeta_of_large_exponents(device: torch.device, dtype: torch.dtype) -> None:
    x = torch.tensor([100.0, 149.0, 151.0, 300.0, 1e4, 1e9], dtype=dtype)[:, None]
    q = torch.tensor([0.1, 0.5, 0.99, 1.0, 1.01, 1.5, 2.0, 100.0, 1e6], dtype=dtype)
    expected, actual = torch.special.zeta(x, q), torch.special.zeta(x.to(device), q.to(device)).cpu()
    # The smallest powers are subnormal, which XLA rounds to zero.
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=torch.finfo(dtype).tiny)


@pytest.mark.parametrize("order", [2, 3, 4, 10, 11, 20])
def test_polygamma_between_its_poles(device: torch.device, order: int) -> None:
    """At the halves, nearly all terms cancel if the order is even. In double precision, the CPU has 7 digits there."""
    x = [-0.5, -1.5, -2.5, -7.5, -0.25, -1.25, -3.75, 0.5, 2.5]
    with mpmath.workdps(50):
        expected = torch.tensor([float(mpmath.polygamma(order, number)) for number in x], dtype=torch.float64)
    for dtype, rtol in ((torch.float32, 2e-5), (torch.float64, 1e-13)):
        actual = torch.polygamma(order, torch.tensor(x, dtype=dtype, device=device)).cpu()
        torch.testing.assert_close(actual.double(), expected, rtol=rtol, atol=0)


def test_polygamma_of_a_factorial_beyond_float32(device: torch.device) -> None:
    x = [4.6, 4.9, 60.0, -3.5]
    with mpmath.workdps(50):
        expected = torch.tensor([float(mpmath.polygamma(64, number)) for number in x])
    assert expected.isinf().tolist() == [True, True, False, True]
    actual = torch.polygamma(64, torch.tensor(x, device=device)).cpu()
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=0)


def test_polygamma_of_a_huge_order(device: torch.device) -> None:
    """Its factorial is infinite. The CPU takes the order as an int32."""
    x = torch.tensor([0.5, 1.0, 2.0], device=device)
    assert str(torch.polygamma(2**40, x).tolist()) == "[-inf, -inf, nan]"
    assert str(torch.polygamma(2**63 - 1, x).tolist()) == "[inf, inf, nan]"
