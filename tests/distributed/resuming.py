"""Training under torchrun's agent with a checkpoint after each step. A rank is killed once; the agent starts all anew,
and they go on from the last checkpoint.

    python -m tests.distributed.resuming FOLDER

starts the agent. Its ranks are forks of one process that has imported torch, and not of the agent: threads of the
agent's store hold locks of the C library for moments, and a fork inherits a held lock for ever.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

DEVICE = torch.device("tpu")
STEPS, KILLED_AFTER = 5, 2


def new_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def batch(step: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(step)
    return torch.randn(4, 6, generator=generator), torch.randint(4, (4,), generator=generator)


def train(folder: Path) -> None:
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = new_model().to(DEVICE)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    last = folder / "last"
    begin = int(last.read_text()) + 1 if last.exists() else 0
    if begin:
        states, optimizers = get_state_dict(model, optimizer)
        checkpoint.load({"model": states, "optimizer": optimizers}, checkpoint_id=folder / str(begin - 1))
        set_state_dict(model, optimizer, model_state_dict=states, optim_state_dict=optimizers)
    for step in range(begin, STEPS):
        inputs, targets = (each.chunk(ranks)[rank].to(DEVICE) for each in batch(step))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        dist.all_reduce(loss, dist.ReduceOp.AVG)
        states, optimizers = get_state_dict(model, optimizer)
        checkpoint.save({"model": states, "optimizer": optimizers}, checkpoint_id=folder / str(step))
        if rank == 0:
            last.write_text(str(step))
            with (folder / "losses").open("a") as losses:
                print(loss.item(), file=losses)
        dist.barrier()
        if step == KILLED_AFTER and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
    dist.destroy_process_group()


def losses_of_one_process() -> list[float]:
    model = new_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    losses = []
    for step in range(STEPS):
        inputs, targets = batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main(folder: Path) -> None:
    multiprocessing.set_forkserver_preload(["torch.distributed.fsdp", "torch.distributed.checkpoint.state_dict"])
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=2,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=1,
        start_method="forkserver",
    )
    elastic_launch(config, train)(folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
