#!/usr/bin/env python3
"""The cost of training steps of changing length: a small compiled GPT, with 20 lengths between 17 and 250.

The same number of steps runs at the mean length and at the largest length, compiled for that length, and at all
lengths with a bound. The step is that of training_step.py. Rounds alternate; figures are medians.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

import torch
from models import BATCH, MODELS, VOCABULARY

LENGTHS = random.Random(0).sample(range(17, 251), 20)


def make_step(bounded: bool) -> Callable[[int], None]:
    torch.manual_seed(0)
    model = MODELS["gpt"]().to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    @torch.compile(dynamic=None if bounded else False)
    def loss_of(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return criterion(model(inputs), targets.flatten())

    def step(length: int) -> None:
        inputs, targets = (torch.randint(VOCABULARY, (BATCH["gpt"], length)).to("tpu") for _ in range(2))
        if bounded:
            for each in (inputs, targets):
                torch._dynamo.mark_dynamic(each, 1, min=2, max=max(LENGTHS))
        optimizer.zero_grad(set_to_none=True)
        loss_of(inputs, targets).backward()
        optimizer.step()
        torch.tpu.synchronize()

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each contender, alternating (default: 3)")
    options = parser.parse_args()
    mean = round(statistics.mean(LENGTHS))
    contenders = {
        f"mean length {mean}": (make_step(False), [mean] * len(LENGTHS)),
        f"largest length {max(LENGTHS)}": (make_step(False), [max(LENGTHS)] * len(LENGTHS)),
        # Last, so that the programs of its first step do not include the optimizer's.
        "20 lengths, bounded": (make_step(True), LENGTHS),
    }
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    for name, (step, lengths) in contenders.items():
        torch.tpu.reset_cache_stats()
        step(lengths[0])  # compiles
        stats = torch.tpu.cache_stats()
        first = stats["compiles"] + stats["disk_hits"]
        for length in lengths:
            step(length)
        stats = torch.tpu.cache_stats()
        print(
            f"{name}: {first} programs in the first step, {stats['compiles'] + stats['disk_hits'] - first} in 20 more"
        )
    for _ in range(options.rounds):
        for name, (step, lengths) in contenders.items():
            start = time.perf_counter()
            for length in lengths:
                step(length)
            seconds[name].append(time.perf_counter() - start)
    base = statistics.median(seconds[f"mean length {mean}"])
    for name, times in seconds.items():
        median = statistics.median(times)
        print(f"{name:<24}{median / len(LENGTHS) * 1e3:>9.1f} ms per step{median / base:>8.2f}")


if __name__ == "__main__":
    main()
