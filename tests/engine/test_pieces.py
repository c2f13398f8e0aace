"""Chunks that are cut into pieces, because many of their results are in use and depend on one another."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check


@pytest.fixture(autouse=True)
def fused() -> None:
    torch.tpu.eager_mode = "fused"


def chain(d: torch.device, links: int) -> list[torch.Tensor]:
    """Each link computes from the one before it, from the first, and from a value that is not kept."""
    x = torch.arange(6.0).reshape(2, 3).to(d)
    results = [x.sin()]
    for _ in range(links):
        hidden = results[-1] * 0.9
        results.append(hidden + results[0] + (hidden - x).cos())
    return results


@pytest.mark.parametrize("links", [31, 33, 100])
def test_a_chain_whose_links_are_kept(device: torch.device, links: int) -> None:
    check(lambda d: chain(d, links), device)


def test_pieces_share_programs(device: torch.device) -> None:
    made = []
    for links in (100, 400):
        torch.tpu.synchronize()
        torch.tpu.reset_cache_stats()
        results = chain(device, links)
        torch.tpu.synchronize()
        stats = torch.tpu.cache_stats()
        made.append(stats["compiles"] + stats["disk_hits"])
        del results
    # The first piece, those in the middle, and the last one.
    assert sum(made) <= 6
    assert stats["requests"] >= 20


def test_values_between_pieces_that_are_not_kept(device: torch.device) -> None:
    def run(d: torch.device) -> list[torch.Tensor]:
        x = torch.linspace(0, 1, 5).to(d)
        early = x.exp()  # used by the last piece only
        results = [x + early]
        for _ in range(70):
            results.append(results[-1].sin())
        return [*results, results[-1] * early]

    check(run, device)


def test_in_place_and_out_of_range(device: torch.device) -> None:
    def run(d: torch.device) -> list[torch.Tensor]:
        x = torch.zeros(4).to(d)
        results = []
        for i in range(60):
            x.add_(1).mul_(1.01)
            results.append(x.clone())
            x[i % 4] = results[-1].sum()
        return [x, *results]

    check(run, device)
    results = [torch.zeros(4).to(device)]
    places = torch.tensor([0, 3]).to(device)
    for i in range(60):
        results.append(results[-1] + results[-1][places + (2 if i == 50 else 0)].sum())
    with pytest.raises(IndexError, match="out of bounds"):
        results[-1].cpu()


def test_a_deep_model_trains(device: torch.device) -> None:
    def train(d: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(*(torch.nn.Linear(3, 3) for _ in range(60))).to(d)
        kept = [torch.ones(2, 3).to(d)]
        for layer in model:
            kept.append(torch.tanh(layer(kept[-1])))
        kept[-1].sum().backward()
        return [each.detach() for each in kept] + [each.grad for each in model.parameters()]

    check(train, device)


def test_random_numbers_are_those_of_one_program(device: torch.device) -> None:
    def run(length: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        results = [torch.zeros(4, device=device)]
        for _ in range(length):
            results.append(results[-1] + torch.rand(4, device=device))
        return [each.cpu() for each in results]

    for one, other in zip(run(20), run(50), strict=False):
        torch.testing.assert_close(one, other)
