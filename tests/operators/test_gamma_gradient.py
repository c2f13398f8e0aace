"""Rows of crates/aten/src/ops/elementwise/gamma_gradient.rs."""

from __future__ import annotations

import torch


def test_gradients_of_gamma_and_dirichlet_variables(device: torch.device) -> None:
    # PyTorch's formulas are approximations with an error of about a thousandth.
    shape = torch.tensor([0.3, 0.3, 1.0, 2.0, 2.0, 10.0, 10.0, 300.0, 300.0, 3000.0])
    value = torch.tensor([0.1, 5.0, 2.0, 0.5, 9.0, 9.0, 20.0, 310.0, 400.0, 2900.0])
    actual = torch._standard_gamma_grad(shape.to(device), value.to(device)).cpu()
    torch.testing.assert_close(actual, torch._standard_gamma_grad(shape, value), rtol=2e-3, atol=0)

    x = torch.tensor([0.01, 0.2, 0.5, 0.9, 0.001, 0.7])
    alpha = torch.tensor([0.5, 2.0, 20.0, 3.0, 0.1, 40.0])
    total = torch.tensor([1.5, 9.0, 45.0, 3.5, 50.0, 55.0])
    actual = torch._dirichlet_grad(*(each.to(device) for each in (x, alpha, total))).cpu()
    torch.testing.assert_close(actual, torch._dirichlet_grad(x, alpha, total), rtol=5e-3, atol=0)

    # The mean of a gamma variable is its shape, so the mean of its derivatives is 1.
    shape = torch.full((4000,), 2.5, device=device, requires_grad=True)
    torch.distributions.Gamma(shape, torch.ones((), device=device)).rsample().sum().backward()
    assert abs(shape.grad.mean().item() - 1) < 0.02
