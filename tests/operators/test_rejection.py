"""Rows of crates/aten/src/ops/random/rejection.rs; test_random.py has more of their distributions."""

from __future__ import annotations

import torch

from tests.operators.test_random import COUNT, ERRORS


def test_poisson_and_binomial_masses(device: torch.device) -> None:
    rates = {3.0: torch.distributions.Poisson(3.0), 14.0: torch.distributions.Poisson(14.0)}
    samples = {rate: torch.poisson(torch.full((COUNT,), rate, device=device)).cpu() for rate in rates}
    trials, p = torch.full((COUNT,), 60.0, device=device), torch.full((COUNT,), 0.4, device=device)
    cases = [(samples[rate], distribution) for rate, distribution in rates.items()]
    cases.append((torch.binomial(trials, p).cpu(), torch.distributions.Binomial(60, torch.tensor(0.4))))
    for sample, distribution in cases:
        counts = torch.bincount(sample.long(), minlength=61)[:61].double()
        mass = distribution.log_prob(torch.arange(61).float()).double().exp()
        error = (counts / COUNT - mass).abs()
        assert (error < ERRORS * (mass * (1 - mass) / COUNT).sqrt() + 3 / COUNT).all()


def test_dirichlet(device: torch.device) -> None:
    alpha = torch.tensor([0.5, 1.0, 2.5])
    sample = torch._sample_dirichlet(alpha.to(device).expand(COUNT, 3)).cpu()
    torch.testing.assert_close(sample.sum(-1), torch.ones(COUNT))
    share = alpha / alpha.sum()
    variance = share * (1 - share) / (alpha.sum() + 1)
    assert ((sample.mean(0) - share).abs() < ERRORS * (variance / COUNT).sqrt()).all()
    assert ((sample.var(0) - variance).abs() < 0.1 * variance).all()
