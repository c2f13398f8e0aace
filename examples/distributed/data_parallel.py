#!/usr/bin/env python3
"""Trains a small classifier by DistributedDataParallel: each process has the whole model and a part of each batch.

torchrun --nproc-per-node 2 examples/distributed/data_parallel.py
"""

from __future__ import annotations

import argparse
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def points() -> TensorDataset:
    """Points in the plane; the class says in which ring a point lies."""
    places = torch.randn(2048, 2, generator=torch.Generator().manual_seed(0))
    return TensorDataset(places, (places.norm(dim=1) * 2).long().clamp(max=3))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="tpu", help="where to train: tpu or cpu")
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    dist.init_process_group()
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))
    model.to(options.device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(parallel.parameters(), lr=1e-2)
    dataset = points()
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(dataset, seed=0)
    loader = DataLoader(dataset, batch_size=64, sampler=sampler)
    for epoch in range(options.epochs):
        sampler.set_epoch(epoch)
        for places, classes in loader:
            optimizer.zero_grad()
            loss = F.cross_entropy(parallel(places.to(options.device)), classes.to(options.device))
            loss.backward()  # the gradients of all processes are averaged meanwhile
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")

    places, classes = (each.to(options.device) for each in dataset.tensors)
    accuracy = (model(places).argmax(1) == classes).float().mean().item()
    if rank == 0:
        print(f"accuracy {accuracy:.3f}")
    dist.destroy_process_group()
    return int(accuracy < 0.9)


if __name__ == "__main__":
    sys.exit(main())
