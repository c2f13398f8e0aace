"""What ranks do in test_programs.py."""

from __future__ import annotations

import datetime
import os
import signal
from typing import Any

import torch
import torch.distributed as dist

from tests.distributed.worker import DEVICE


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
