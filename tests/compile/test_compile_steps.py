"""Compiled optimizers, and whole training steps as one program (`torch.tpu.compile_step`)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.1),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.1, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.1),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_compiled_optimizers(optimizer: str, device: torch.device) -> None:
    def train(device: torch.device | str, compiled: bool) -> list[Tensor]:
        torch.random.default_generator.manual_seed(0)
        parameters = [torch.randn(3, 3).to(device).requires_grad_() for _ in range(3)]
        stepper = OPTIMIZERS[optimizer](parameters)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(stepper, 0.9)
        step = torch.compile(stepper.step) if compiled else stepper.step
        for _ in range(4):
            stepper.zero_grad()
            sum((each.square() * (i + 1)).sum() for i, each in enumerate(parameters)).backward()
            step()
            scheduler.step()
        return [each.detach().cpu() for each in parameters]

    torch.testing.assert_close(train(device, True), train("cpu", False), rtol=1e-3, atol=1e-4)


def test_a_whole_step_is_one_program(device: torch.device) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())

    @torch.tpu.compile_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = torch.randn(16, 4, device=device), torch.randn(16, 2, device=device)
    losses = [step(x, y).item() for _ in range(3)]
    torch.tpu.reset_cache_stats()
    losses.append(step(x, y).item())
    stats = torch.tpu.cache_stats()
    # One for the gradient of the loss itself, a constant.
    assert stats["requests"] == stats["hits"] <= 2
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_the_first_step_is_the_program_of_all_others(device: torch.device, mode: str) -> None:
    """Although it creates the optimizer's state. A compiled model is part of the step's program."""
    for compiled in (False, True):
        model = nn.Sequential(nn.Linear(4, 7), nn.GELU(), nn.Linear(7, 3)).to(device)
        optimizer = torch.optim.AdamW(model.parameters())
        forward = torch.compile(model) if compiled else model

        def step(x: Tensor, forward: Any = forward, optimizer: torch.optim.Optimizer = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = forward(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        step = torch.tpu.compile_step(step)
        with torch.tpu.set_eager_mode(mode):
            torch.tpu.synchronize()
            step(torch.randn(5, 4, device=device))
            for _ in range(2):
                x = torch.randn(5, 4, device=device)
                torch.tpu.synchronize()
                torch.tpu.reset_cache_stats()
                step(x)
                stats = torch.tpu.cache_stats()
                assert stats["requests"] == stats["hits"] <= 2


def test_what_is_read_within_a_step(device: torch.device) -> None:
    """The program ends there, and an error leaves no scope open."""
    x = torch.arange(6.0, device=device)

    @torch.tpu.compile_step
    def step(x: Tensor, fails: bool) -> tuple[float, Tensor]:
        total = (x * 2).sum().item()
        if fails:
            raise ValueError(total)
        return total, x + total

    total, moved = step(x, False)
    assert total == 30.0
    assert moved.tolist() == [30.0 + i for i in range(6)]
    with pytest.raises(ValueError, match=r"30\.0"):
        step(x, True)
    torch.tpu.synchronize()
    torch.tpu.reset_cache_stats()
    with torch.tpu.set_eager_mode("strict"):
        (x + 1) * 3
    assert torch.tpu.cache_stats()["requests"] == 2


def test_an_upload_does_not_end_a_step(device: torch.device) -> None:
    data = torch.arange(4.0)

    @torch.tpu.compile_step
    def step(x: Tensor) -> Tensor:
        for _ in range(100):
            x = x + 1
        return x * data.to(device)

    x = torch.ones(4).to(device)
    with torch.tpu.explain() as explanation:
        result = step(x)
    assert result.tolist() == [0, 101, 202, 303]
    assert [run["reason"] for run in explanation.runs] == ["the end of a compiled step"], explanation


def test_other_threads_do_not_join_a_step(mode: str, device: torch.device) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.5)
    other = torch.compile(lambda x: x * 2 + 1, dynamic=False)
    read: list[list[float]] = []

    def elsewhere(n: int) -> None:
        counted = torch.zeros(n, device=device)
        counted[: n // 2].add_(1)
        read.append((other(counted) + model[0].weight.detach()[0, 0]).tolist())

    @torch.compiler.disable
    def run_elsewhere() -> None:
        thread = threading.Thread(target=elsewhere, args=(n,))
        thread.start()
        thread.join()

    @torch.tpu.compile_step
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        run_elsewhere()
        loss.backward()
        optimizer.step()
        return loss.detach()

    x, y = torch.randn(16, 4, device=device), torch.randn(16, 2, device=device)
    made, losses = [], []
    for n in (4, 4, 4, 4, 6, 8):
        elsewhere(n)
        before, weight = programs_made(), model[0].weight[0, 0].item()
        losses.append(step(x, y).item())
        made.append(programs_made() - before)
        torch.testing.assert_close(read[-1], [3 + weight] * (n // 2) + [1 + weight] * (n - n // 2))
    assert losses == sorted(losses, reverse=True)
    # The thread's programs were compiled when it ran alone, not for this step.
    assert made[3:] == [0, 0, 0]
