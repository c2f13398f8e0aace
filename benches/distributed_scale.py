#!/usr/bin/env python3
"""What one rank of very many does before and in its first step, with a group that sends nothing: seconds and memory.

python benches/distributed_scale.py --ranks 1024 8192 102400
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.testing._internal.distributed.fake_pg import FakeStore

WIDTH, LAYERS, STAGES, TENSOR = 256, 4, 8, 8


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 4 * WIDTH),
            nn.Linear(4 * WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(nn.functional.gelu(self.wide(self.norm(x))))


def measure(ranks: int) -> None:
    """Prints the seconds of each step on rank 0, and the most memory of the process, as JSON."""
    seconds: dict[str, float] = {}

    def timed(name: str, call: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = call()
        seconds[name] = round(time.perf_counter() - began, 3)
        return result

    (torch.ones(2, device="tpu") + 1).sum().item()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    timed("group", lambda: dist.init_process_group("cpu:fake,tpu:fake", store=FakeStore(), rank=0, world_size=ranks))
    shape = (ranks // (STAGES * TENSOR), STAGES, TENSOR)
    mesh = timed("mesh", lambda: init_device_mesh("tpu", shape, mesh_dim_names=("data", "stages", "tensor")))
    model = nn.Sequential(*(Block() for _ in range(LAYERS))).to("tpu")

    def split() -> None:
        for block in model:
            parallelize_module(block, mesh["tensor"], {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})

    def shard() -> None:
        for block in model:
            fully_shard(block, mesh=mesh["data"])
        fully_shard(model, mesh=mesh["data"])

    timed("tensor parallel", split)
    timed("fully_shard", shard)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(torch.ones(4, WIDTH, device="tpu")).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        torch.accelerator.synchronize()

    timed("first step", step)
    timed("second step", step)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"ranks": ranks, **seconds, "MB": (after - before) // 1024}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1024, 8192, 102400], help="multiples of 64")
    options = parser.parse_args()
    if len(options.ranks) == 1:
        measure(options.ranks[0])
        return
    for ranks in options.ranks:
        # A process has one default group.
        finished = subprocess.run([sys.executable, __file__, "--ranks", str(ranks)], capture_output=True, text=True)
        print(finished.stdout.strip().rpartition("\n")[2] or finished.stderr, flush=True)


if __name__ == "__main__":
    main()
