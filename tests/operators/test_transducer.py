"""Rows of crates/aten/src/ops/nn/transducer.rs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers import programs_made

# `make test` installs it. torchtpu does not need it.
F = pytest.importorskip("torchaudio.functional", reason="torchaudio is not installed: pip install torchaudio")

i32 = torch.int32


def problem(batch: int, times: int, labels: int, classes: int) -> tuple[Tensor, ...]:
    """Logits, targets and lengths. The first sample is the longest."""
    logits = torch.randn(batch, times, labels + 1, classes)
    targets = torch.randint(1, classes, (batch, labels), dtype=i32)
    logit_lengths = torch.randint(1, times + 1, (batch,), dtype=i32)
    target_lengths = torch.randint(0, labels + 1, (batch,), dtype=i32)
    logit_lengths[0], target_lengths[0] = times, labels
    return logits, targets, logit_lengths, target_lengths


def loss(given: tuple[Tensor, ...], device: Any, **options: Any) -> tuple[Tensor, Tensor]:
    """The loss of each sample, and the gradient of their sum weighted by their number."""
    logits, *rest = (each.to(device) for each in given)
    logits = logits.detach().requires_grad_()
    losses = F.rnnt_loss(logits, *rest, blank=0, reduction="none", **options)
    (losses * torch.arange(1, len(losses) + 1, device=device)).sum().backward()
    assert logits.grad is not None
    return losses.detach().cpu(), logits.grad.cpu()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("sizes", [(1, 4, 2, 5), (3, 7, 4, 6), (2, 1, 1, 4), (2, 5, 0, 3)])
def test_rnnt_loss(sizes: tuple[int, int, int, int], dtype: torch.dtype, device: torch.device, mode: str) -> None:
    given = problem(*sizes)
    given = (given[0].to(dtype), *given[1:])
    tolerance = 1e-5 if dtype == torch.float32 else 3e-3
    for options in ({}, {"clamp": 0.05}, {"fused_log_softmax": False}):
        logits = given[0] if options.get("fused_log_softmax", True) else given[0].log_softmax(-1)
        expected = loss((logits, *given[1:]), "cpu", **options)
        actual = loss((logits, *given[1:]), device, **options)
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


def test_padding_does_not_matter(device: torch.device) -> None:
    """Logits and targets behind the lengths may be anything."""
    logits, targets, logit_lengths, target_lengths = problem(2, 6, 4, 5)
    logit_lengths[1], target_lengths[1] = 3, 2
    expected = loss((logits, targets, logit_lengths, target_lengths), "cpu")
    logits[1, 3:] = logits[1, :, 3:] = torch.nan
    targets[1, 2:] = 1_000_000
    actual = loss((logits, targets, logit_lengths, target_lengths), device)
    torch.testing.assert_close(actual, expected)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_rnnt_loss_of_sizes_that_change(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    made = []
    for times, labels in [(20, 5), (17, 4), (30, 7), (25, 6), (22, 3), (28, 7), (31, 5)]:
        given = problem(2, times, labels, 8)
        before = programs_made()
        actual = loss(given, device)
        made.append(programs_made() - before)
        torch.testing.assert_close(actual, loss(given, "cpu"), rtol=1e-4, atol=1e-5)
    assert sum(made[3:]) == 0, made


REFUSED = {
    "logits must be float32": lambda x, y, t, u: (x.double(), y, t, u),
    "targets must be int32": lambda x, y, t, u: (x, y.long(), t, u),
    "logits must be 4-D": lambda x, y, t, u: (x[0], y, t, u),
    "batch dimension mismatch": lambda x, y, t, u: (x, y, t[:1], u),
    "target length mismatch": lambda x, y, t, u: (x, y[:, 1:].contiguous(), t, u),
    "input length mismatch": lambda x, y, t, u: (x, y, t - 1, u),
    "output length mismatch": lambda x, y, t, u: (x, y, t, u * 0),
}


@pytest.mark.parametrize("message", REFUSED)
def test_rnnt_loss_is_refused(message: str, device: torch.device, mode: str) -> None:
    given = REFUSED[message](*problem(2, 4, 3, 5))
    with pytest.raises(RuntimeError, match=message):
        F.rnnt_loss(*given, blank=0)
    with pytest.raises(RuntimeError, match=message):
        F.rnnt_loss(*(each.to(device) for each in given), blank=0).cpu()


def test_a_target_that_is_no_class(device: torch.device) -> None:
    """torchaudio's CPU kernel reads outside of the logits."""
    logits, targets, *lengths = (each.to(device) for each in problem(1, 4, 3, 5))
    with pytest.raises(IndexError, match="Target 5 is out of bounds"):
        F.rnnt_loss(logits, targets * 0 + 5, *lengths, blank=0).cpu()
