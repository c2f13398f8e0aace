"""A process whose plugin fails at random: it raises errors, and loses nothing else.

    TORCHTPU_PLUGIN=PLUGIN python -m tests.fuzz.hostile fused 17

runs one trial with a plugin that was built from faulty_plugin.c.
"""

from __future__ import annotations

import ctypes
import os
import random
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# How many calls of the plugin there are for each that fails, from a plugin that hardly works to one that seldom fails.
RATES = (3, 10, 40)
STEPS = 12


def attempt(call: Callable[[], Any]) -> Any:
    """What a call returns, or its error. Errors of other types are failures of this package."""
    try:
        return call()
    except RuntimeError as error:  # torch.OutOfMemoryError is one, too
        if "injected into" in str(error) or "out of memory" in str(error).lower():
            return error
        raise


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(F.relu(self.first(x)))


def train(device: str, steps: int, seed: int) -> list[float]:
    torch.manual_seed(seed)
    model = Network().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(steps):
        inputs, targets = torch.randn(5, 6), torch.randint(3, (5,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs.to(device)), targets.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def compiled(size: int) -> Tensor:
    return torch.compile(lambda x: (x * 2).softmax(0) @ x)(torch.randn(size, size).to("tpu")).cpu()


def some_calls(draw: random.Random, kept: Tensor) -> list[Callable[[], Any]]:
    """Calls over sizes that are new, so that programs compile."""
    size = draw.randrange(2, 40)
    return [
        lambda: train("tpu", 2, size),
        lambda: (kept[:2] * size).sum().item(),
        lambda: torch.randn(size, 3).to("tpu").sort(0).values.cpu(),
        lambda: torch.ones(size, device="tpu").cumsum(0).tolist(),
        lambda: kept.clone().mul_(size).add_(kept).cpu(),
        lambda: torch.cat([kept, torch.full((size, 4), 1.5, device="tpu")]).cpu(),
        lambda: kept[kept > 5].cpu(),
        lambda: torch.tpu.synchronize(),
        lambda: torch.tpu.mem_get_info(),
        lambda: torch.tpu.memory_stats(),
        lambda: compiled(size) if size < 5 else torch.zeros(size, device="tpu").exp(),
    ]


def trial(mode: str, seed: int) -> int:
    """Returns how many calls of the plugin failed."""
    faults = ctypes.CDLL(os.environ["TORCHTPU_PLUGIN"]).faults
    faults.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    faults.restype = ctypes.c_uint64
    torch.tpu.eager_mode = mode
    draw = random.Random(seed)
    numbers = torch.arange(12.0).reshape(3, 4)
    kept, weight = numbers.to("tpu"), torch.ones(4, 4).to("tpu").requires_grad_()
    torch.tpu.synchronize()
    held = [kept]
    faults(seed, draw.choice(RATES))
    for _ in range(STEPS):
        found = attempt(draw.choice(some_calls(draw, kept)))
        attempt(lambda: (kept @ weight).sum().backward())
        made = attempt(lambda: kept + 1)
        if isinstance(made, Tensor):
            held.append(made)
        del found
    injected = faults(0, 0)
    # Errors of work that was still waiting. Each is raised once.
    for _ in range(2 * STEPS + int(injected)):
        if attempt(torch.tpu.synchronize) is None:
            break
    torch.tpu.synchronize()
    # Older tensors have their values. A tensor of the time of faults is right, or its read raises an error.
    torch.testing.assert_close(kept.cpu(), numbers)
    for made in held[1:]:
        found = attempt(made.cpu)
        if isinstance(found, Tensor):
            torch.testing.assert_close(found, numbers + 1)
    torch.testing.assert_close(train("tpu", 3, seed), train("cpu", 3, seed), rtol=1e-4, atol=1e-5)
    return int(injected)


if __name__ == "__main__":
    print(trial(sys.argv[1], int(sys.argv[2])))
