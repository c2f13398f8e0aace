"""A step of FSDP2 on four ranks: what each holds, and what is compiled."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.reductions import StorageWeakRef
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DEVICE = torch.device("tpu")
WIDTH, LAYERS = 256, 8
LAYER_BYTES = 4 * WIDTH * WIDTH


def model_of_layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))


def step_on(device: torch.device) -> Callable[[], None]:
    """A step of a model whose layers are sharded over all ranks."""
    model = model_of_layers().to(device)
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    if mesh.size() > 1:
        for layer in model:
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    batch = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank())).to(device)

    def step() -> None:
        optimizer.zero_grad()
        loss = F.mse_loss(model(batch), batch)
        loss.backward()
        optimizer.step()
        loss.item()

    return step


class Storages(TorchDispatchMode):
    """The bytes of the storages that calls have returned and that are alive, and their maximum."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[StorageWeakRef] = []
        self.peak = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in filter(torch.is_tensor, tree_leaves(result)):
            self.alive.append(StorageWeakRef(getattr(tensor, "_local_tensor", tensor).untyped_storage()))
        storages = {each.cdata: each for each in self.alive if not each.expired()}
        self.alive = list(storages.values())
        sizes = (torch.UntypedStorage._new_with_weak_ptr(each.cdata) for each in self.alive)
        self.peak = max(self.peak, sum(each.nbytes() for each in sizes if each is not None))
        return result


def peak_of_pytorch(ranks: int) -> int:
    """What one of so many ranks holds at the peak of a step with PyTorch's CPU backend. The group sends nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    with Storages() as storages:
        step = step_on(torch.device("cpu"))
        for number in range(5):
            if number == 3:
                storages.peak = 0
            step()
    dist.destroy_process_group()
    return storages.peak


def train(mode: str, steps: int) -> dict[str, Any]:
    """Trains for some steps. The bytes at the peak of a step after the first ones, those of the activations, and how
    many programs each step has compiled."""
    torch.tpu.eager_mode = mode
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    step = step_on(DEVICE)
    compiled: list[int] = []
    programs: list[int] = []
    for number in range(steps):
        if number == 3:
            torch.tpu.synchronize()
            torch.tpu.reset_peak_memory_stats()
        before = torch.tpu.cache_stats()
        step()
        torch.tpu.synchronize()
        after = torch.tpu.cache_stats()
        compiled.append(after["compiles"] - before["compiles"])
        programs.append(sum(after[name] - before[name] for name in ("compiles", "disk_hits")))
    peak = torch.tpu.max_memory_allocated()
    dist.destroy_process_group()
    return {"peak": peak, "compiled": compiled, "programs": programs}
