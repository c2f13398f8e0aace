"""A script that starts a process for each device by `torch.multiprocessing.spawn`, as PyTorch's tutorials do."""

from __future__ import annotations

import datetime
import os
import socket

import torch
import torch.distributed as dist
from torch import nn


def main(how: str) -> None:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(found.getsockname()[1]))
    count = torch.tpu.device_count()
    assert not torch.tpu.lazy.is_open()
    torch.multiprocessing.spawn(run, args=(count, how), nprocs=count)


def run(rank: int, count: int, how: str) -> None:
    if how == "set" or (rank == 1 and how == "other"):
        torch.tpu.set_device(rank if how == "set" else 0)
    try:
        dist.init_process_group("tpu", rank=rank, world_size=count, timeout=datetime.timedelta(seconds=60))
    except RuntimeError as refused:
        say(str(refused))
        return
    device = torch.device("tpu", rank)
    model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1).to(rank if how == "to" else device), device_ids=[rank])
    model(torch.ones(3, 2, device=device)).sum().backward()
    total = torch.full((1,), rank + 1.0, device="tpu")
    dist.all_reduce(total)
    say(f"{rank}:{total.device}:{total.item()}")
    dist.destroy_process_group()


def say(line: str) -> None:
    """Prints a line in one piece. Otherwise its end may come after a line of another process."""
    print(f"{line}\n", end="", flush=True)
