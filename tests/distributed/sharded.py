"""A step of FSDP2 on four ranks: what each holds, and what is compiled."""

from __future__ import annotations

import datetime
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard

DEVICE = torch.device("tpu")
WIDTH, LAYERS = 256, 8
LAYER_BYTES = 4 * WIDTH * WIDTH


def model_of_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def train(mode: str, steps: int) -> dict[str, Any]:
    """Trains for some steps. The bytes at the peak of a step after the first ones, those of the activations, and how
    many programs each step has compiled."""
    torch.tpu.eager_mode = mode
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    ranks = dist.get_world_size()
    model = model_of_layers().to(DEVICE)
    if ranks > 1:
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank())).to(DEVICE)
    compiled: list[int] = []
    programs: list[int] = []
    for step in range(steps):
        if step == 3:
            torch.tpu.synchronize()
            torch.tpu.reset_peak_memory_stats()
        before = torch.tpu.cache_stats()
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        loss.item()
        torch.tpu.synchronize()
        after = torch.tpu.cache_stats()
        compiled.append(after["compiles"] - before["compiles"])
        programs.append(sum(after[name] - before[name] for name in ("compiles", "disk_hits")))
    peak = torch.tpu.max_memory_allocated()
    dist.destroy_process_group()
    return {"peak": peak, "compiled": compiled, "programs": programs}
