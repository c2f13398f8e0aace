"""Lists in which the same tensor comes several times, as in samples with replacement: one program for all patterns."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from tests.helpers import check, programs_made

pytestmark = pytest.mark.usefixtures("mode")

# A list has the tensors with these numbers. There are six tensors.
PATTERNS = [[random.Random(seed).randrange(6) for _ in range(9)] for seed in range(8)]


def tensors(device: str | torch.device, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    return [torch.arange(8.0).reshape(2, 4).add(100 * number).to(device, dtype) for number in range(6)]


@pytest.mark.parametrize("join", [torch.cat, torch.stack, torch.vstack], ids=lambda join: join.__name__)
def test_one_program_serves_all_patterns(device: torch.device, join) -> None:
    ours, theirs = tensors(device), tensors("cpu")

    def run(of: list[Tensor], pattern: list[int]) -> Tensor:
        return (join([of[number] for number in pattern]) * 2 - of[pattern[0]][0]).cpu()

    run(ours, PATTERNS[0])
    before = programs_made()
    for pattern in PATTERNS[1:]:
        assert torch.equal(run(ours, pattern), run(theirs, pattern))
    assert programs_made() == before


def test_replay_buffer(device: torch.device) -> None:
    """A step of training on a sample with replacement, while the buffer changes."""
    torch.manual_seed(0)
    start = torch.randn(4, 3)
    states = {str(device): [state.to(device) for state in torch.randn(6, 2, 4)]}
    states["cpu"] = [state.cpu() for state in states[str(device)]]
    weights = {"cpu": start.clone().requires_grad_(), str(device): start.to(device).requires_grad_()}

    def step(number: int, d: str) -> Tensor:
        sample = torch.cat([states[d][k] for k in PATTERNS[number]])
        loss = (sample @ weights[d]).square().mean()
        loss.backward()
        with torch.no_grad():
            weights[d] -= 0.1 * weights[d].grad
            weights[d].grad = None
            states[d][number % 6].mul_(0.5).add_(sample[:2])
        return loss.detach().cpu()

    for number in range(len(PATTERNS)):
        torch.testing.assert_close(step(number, str(device)), step(number, "cpu"))
    torch.testing.assert_close(weights[str(device)].detach().cpu(), weights["cpu"].detach())


def test_a_tensor_that_is_dropped_or_written_afterwards(device: torch.device) -> None:
    """Neither input of the program may have the memory of the other."""

    def run(d: torch.device) -> list[Tensor]:
        large = torch.arange(4096.0).to(d)
        twice = torch.cat([large, large])
        large += 1
        thrice = torch.stack([large, large, twice[:4096]])
        del large
        return [twice, thrice, torch.cat([thrice[0], thrice[0], thrice.flatten()])]

    check(run, device)


def test_results_of_the_same_chunk(device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        x = torch.linspace(0, 1, 2048).to(d)
        y, z = x.sin(), x.exp()
        joined = [torch.cat([each[number % 3] for number in pattern]) for pattern in PATTERNS for each in [(x, y, z)]]
        return [*joined, y + 1, torch.stack([z, z])]

    check(run, device)


def test_pieces_of_a_long_chunk(device: torch.device) -> None:
    """Each piece of a chunk whose results depend on one another takes a repeated tensor as it would by itself."""

    def run(d: torch.device) -> list[Tensor]:
        x = torch.linspace(0, 1, 2048).to(d)
        early, results = x.exp(), [x]
        for _ in range(70):
            results.append(results[-1].sin() + early)
        return [*results, torch.cat([early, early, results[40], results[40]]), torch.stack([results[-1], results[-1]])]

    check(run, device)


def test_views_other_dtypes_and_empty_tensors(device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        x = torch.arange(12.0).reshape(3, 4).to(d)
        half, empty = x.half(), x[:0]
        out = torch.empty(9, 4, device=d)
        torch.cat([x, x, x], out=out)
        return [
            torch.cat([x, half, x]),
            torch.cat([x[0], x[1], x[0]]),
            torch.cat([x[:1], x, x[:1]]),
            torch.cat([x.T, x.T, x.T[1:]]),
            torch.cat([x, empty, empty, x]),
            torch.cat([empty, empty]),
            torch.stack([x.view(torch.int32), x.view(torch.int32)]),
            torch.cat([x.to(torch.complex64).conj(), x.to(torch.complex64)]),
            torch.stack([x[0, :1], x[0, :1]]),
            torch.cat([x.expand(2, 3, 4), x.expand(2, 3, 4)]),
            out,
        ]

    check(run, device)


def test_errors_leave_the_tensors(device: torch.device) -> None:
    x = torch.ones(2, 3, device=device)
    with pytest.raises(RuntimeError, match="Sizes of tensors must match"):
        torch.cat([x, x, torch.ones(2, 4, device=device)])
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat([x, x], out=x)
    assert torch.equal(torch.cat([x, x]).cpu(), torch.ones(4, 3))


def test_gradients_and_lengths_that_change(device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        results = []
        for length in (5, 6, 7, 9, 11, 12):
            x = torch.linspace(0, 1, length * 3).reshape(length, 3).to(d).requires_grad_()
            torch.cat([x, x.detach(), x]).pow(2).sum().backward()
            results += [x.grad, torch.stack([x, x]).detach()]
        return results

    check(run, device)
