#!/usr/bin/env python3
"""Trains a feed-forward network on a mesh: the processes of a row share each layer's matrices (tensor parallel),
those of a column share parameters, gradients and optimizer state (FSDP2).

    torchrun --nproc-per-node 4 examples/distributed/mesh.py --tensor-parallel 2
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F
from torchtpu.distributed import topology_aware_mesh


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tensor-parallel", type=int, default=1, help="how many processes share a matrix")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    options = parser.parse_args()

    dist.init_process_group()
    rows = dist.get_world_size() // options.tensor_parallel
    mesh = topology_aware_mesh((rows, options.tensor_parallel), ("data", "tensor"))
    torch.manual_seed(0)
    model = nn.Sequential(*(Block(options.width) for _ in range(2)), nn.Linear(options.width, 1)).to("tpu")
    for block in model[:2]:
        parallelize_module(block, mesh["tensor"], {"wide": ColwiseParallel(), "narrow": RowwiseParallel()})
        fully_shard(block, mesh=mesh["data"])
    fully_shard(model, mesh=mesh["data"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)

    # The processes of a row see the same data; each row its own.
    generator = torch.Generator().manual_seed(mesh["data"].get_local_rank())
    first = last = 0.0
    for step in range(options.steps):
        inputs = torch.randn(64, options.width, generator=generator)
        targets = inputs.sin().mean(1, keepdim=True)
        loss = F.mse_loss(model(inputs.to("tpu")), targets.to("tpu"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0 or step == options.steps - 1:
            first, last = first or loss.item(), loss.item()
    if dist.get_rank() == 0:
        print(f"mesh {tuple(mesh.shape)}: loss {first:.4f} at first, {last:.4f} at last")
    dist.destroy_process_group()
    return int(last > first / 2)


if __name__ == "__main__":
    sys.exit(main())
