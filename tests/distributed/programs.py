"""What ranks do in test_programs.py."""

from __future__ import annotations

import datetime
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

from tests.distributed.worker import DEVICE, group_of_hosts


def collectives_are_programs() -> dict[str, Any]:
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    tensor = torch.full((4,), float(dist.get_rank() + 1), device=DEVICE)
    with torch.tpu.explain() as explanation:
        dist.all_reduce(tensor)
        gathered = tensor.new_empty(4 * dist.get_world_size())
        dist.all_gather_into_tensor(gathered, tensor)
        value = gathered[-1].item()
    dist.destroy_process_group()
    reasons = [run["reason"] for run in explanation.runs]
    return {
        "jobs": [each["name"] for each in explanation.collectives],
        "programs": sum("collective is cut" in reason for reason in reasons),
        "devices": torch.tpu.device_count(),
        "value": value,
    }


def parts_of_different_sizes() -> dict[str, Any]:
    """In Fused: each rank pads its own part, and the programs with collectives are the same on all ranks."""
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    torch.tpu.eager_mode = "fused"
    rank, size = dist.get_rank(), dist.get_world_size()
    sizes = [each + 1 for each in range(size)]
    values = []
    with torch.tpu.explain() as explanation:
        for step in range(6):
            parts = [torch.zeros(each, device=DEVICE) for each in sizes]
            dist.all_gather(parts, torch.full((rank + 1,), float(step + rank), device=DEVICE))
            own = torch.empty(rank + 1, device=DEVICE)
            dist.reduce_scatter(own, [part * 2 for part in parts])
            values.append(torch.cat([*parts, own]).tolist())
    dist.destroy_process_group()
    return {"jobs": [each["name"] for each in explanation.collectives], "values": values}


def a_rank_dies() -> dict[str, Any]:
    dist.init_process_group(timeout=datetime.timedelta(seconds=10))
    rank = dist.get_rank()
    tensor = torch.ones(4, device=DEVICE)
    dist.all_reduce(tensor)
    tensor.cpu()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = ""
    try:
        dist.all_reduce(tensor)
        tensor.cpu()
    except RuntimeError as raised:
        error = str(raised)
    return {"error": error, "computed": (torch.ones(4, device=DEVICE)).sum().item()}


def a_rank_does_not_call(mode: str, how: str) -> dict[str, Any]:
    """Rank 1 does not call what the others do, and the plugin waits for long."""
    torch.tpu.eager_mode = mode
    dist.init_process_group(timeout=datetime.timedelta(seconds=4))
    rank, hosts = dist.get_rank(), group_of_hosts()
    x, other = torch.ones(4, device=DEVICE), torch.ones(2, device=DEVICE)
    for _ in range(4):
        # In Fused, the last of them join a program.
        x = x * 2
        dist.all_reduce(x, dist.ReduceOp.AVG)
        x.tolist()
    begun = time.monotonic()
    if rank == 1:
        dist.barrier(hosts)
        return {}
    dist.all_reduce(x)
    y = x + 1

    def wait() -> object:
        if how == "read":
            return y.tolist()
        if how == "synchronize":
            return torch.tpu.synchronize()
        event = torch.Event(DEVICE)
        event.record()
        return event.synchronize()

    first = error_of(wait)
    waited = time.monotonic() - begun
    dist.barrier(hosts)
    later = [error_of(lambda: dist.all_reduce(other)), error_of(y.tolist)]
    return {"first": first, "later": later, "waited": waited}


def shapes_differ() -> dict[str, Any]:
    dist.init_process_group(timeout=datetime.timedelta(seconds=20))
    tensor = torch.ones(4 + 2 * dist.get_rank(), device=DEVICE)
    dist.all_reduce(tensor)
    return {"error": error_of(tensor.tolist), "computed": (torch.ones(4, device=DEVICE)).sum().item()}


def error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except RuntimeError as raised:
        return str(raised)
    return ""


def use_the_device_before() -> str:
    torch.ones(1, device=DEVICE)
    torch.tpu.synchronize()
    try:
        dist.init_process_group(timeout=datetime.timedelta(seconds=10))
    except RuntimeError as raised:
        return str(raised)
    return ""


def programs_end_with_their_groups() -> list[int]:
    """How many programs are made for the same collective: of two groups in turn, and of two at once."""
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    tensor = torch.ones(5, device=DEVICE)

    def made(group: dist.ProcessGroup) -> int:
        with torch.tpu.explain() as explanation:
            dist.all_reduce(tensor, group=group)
        return len(explanation.compiles)

    first = dist.new_group()
    counts = [made(first), made(first)]
    dist.destroy_process_group(first)
    second, third = dist.new_group(), dist.new_group()
    counts += [made(second), made(third)]
    dist.destroy_process_group(second)
    counts.append(made(third))
    dist.destroy_process_group()
    return counts


def devices_have_the_numbers_of_local_ranks(how: str) -> dict[str, Any]:
    """What a script does that names its device by its local rank, as scripts for CUDA do."""
    rank = int(os.environ["LOCAL_RANK"])
    device = torch.device("tpu", rank)
    if how == "set":
        torch.tpu.set_device(device)
    elif how == "accelerator":
        torch.accelerator.set_device_index(rank)
    given = device if how in ("id", "accelerator") else None
    dist.init_process_group("tpu", device_id=given, timeout=datetime.timedelta(seconds=60))
    model = nn.parallel.DistributedDataParallel(nn.Linear(3, 3).to(device), device_ids=[rank])
    model(torch.ones(2, 3).to(rank)).sum().backward()
    total = torch.ones(1, device=DEVICE)
    dist.all_reduce(total, group=init_device_mesh("tpu", (2, 1), mesh_dim_names=("data", "model"))["data"].get_group())
    try:
        torch.ones(1, device=torch.device("tpu", 1 - rank))
        other = ""
    except RuntimeError as raised:
        other = str(raised)
    places = [
        str(each) for each in (total.device, model.module.weight.grad.device, torch.ones(1, device=DEVICE).device)
    ]
    return {
        "count": torch.tpu.device_count(),
        "current": torch.tpu.current_device(),
        "places": places,
        "total": total.item(),
        "other": other,
        "allocated": torch.tpu.memory_allocated(device) > 0,
        "name": torch.tpu.get_device_name(1 - rank) == torch.tpu.get_device_name(rank),
    }
