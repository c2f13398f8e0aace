#!/usr/bin/env python3
"""Trains a network in stages, one in each process, by the schedule 1F1B: a process begins with the next microbatch
while the others still work on the one before.

    torchrun --nproc-per-node 2 examples/distributed/pipeline.py
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn import functional as F


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--microbatches", type=int, default=4)
    options = parser.parse_args()

    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    is_first, is_last = rank == 0, rank == ranks - 1
    torch.manual_seed(rank)
    layers = nn.Sequential(nn.Linear(16, 16), nn.Tanh(), *([nn.Linear(16, 4)] if is_last else []))
    stage = PipelineStage(layers.to("tpu"), rank, ranks, torch.device("tpu"))
    schedule = Schedule1F1B(stage, options.microbatches, loss_fn=F.cross_entropy)
    optimizer = torch.optim.AdamW(layers.parameters(), lr=1e-2)

    generator = torch.Generator().manual_seed(0)
    first = last = 0.0
    for step in range(options.steps):
        inputs = torch.randn(64, 16, generator=generator)
        classes = inputs[:, :4].argmax(1)
        losses: list[torch.Tensor] = []
        optimizer.zero_grad()
        if is_first:
            schedule.step(inputs.to("tpu"))
        elif is_last:
            schedule.step(target=classes.to("tpu"), losses=losses)
        else:
            schedule.step()
        optimizer.step()
        if is_last and step in (0, options.steps - 1):
            last = torch.stack(losses).mean().item()
            first = first or last
    if is_last:
        print(f"{ranks} stages: loss {first:.3f} at first, {last:.3f} at last")
    dist.destroy_process_group()
    return int(last > first / 2)


if __name__ == "__main__":
    sys.exit(main())
