"""What a rank sees when another one fails."""

from __future__ import annotations

import datetime
import json
import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace_json

from tests.distributed.worker import DEVICE, group_of_hosts

KEPT: list[torch.Tensor] = []  # until the process ends
# These end by the group's timeout. In the others a rank may be late because the machine is busy.
WAIT_IN_VAIN = ("a_rank_dies", "a_rank_is_late", "a_message_does_not_come", "a_message_never_comes")


def attempt(call: Callable[[], object]) -> str:
    """The error of a call. The device computes afterwards."""
    try:
        call()
    except Exception as error:
        found = f"{type(error).__name__}: {error}"
    else:
        found = "no error"
    assert (torch.ones(2, device=DEVICE) + 1).sum().item() == 4
    return found


def a_rank_dies(rank: int, tensor: torch.Tensor) -> object:
    if rank == 1:
        os._exit(0)
    first = attempt(lambda: (dist.all_reduce(tensor), tensor.cpu()))
    other = torch.ones(4, device=DEVICE)
    return [first, attempt(lambda: (dist.broadcast(other, 0), other.cpu(), torch.tpu.synchronize()))]


def a_rank_is_late(rank: int, tensor: torch.Tensor) -> object:
    hosts = group_of_hosts()
    if rank == 1:
        dist.barrier(hosts)
    error = attempt(lambda: (dist.all_reduce(tensor), tensor.cpu()))
    if rank == 0:
        dist.barrier(hosts)
    dist.barrier(hosts)  # the store is the first rank's
    return error


def shapes_differ(rank: int, tensor: torch.Tensor) -> object:
    other = torch.ones(4 + 2 * rank, device=DEVICE)
    error = attempt(lambda: (dist.all_reduce(other), other.cpu()))
    dist.all_reduce(tensor)
    return [error, tensor.tolist()]


def collectives_differ(rank: int, tensor: torch.Tensor) -> object:
    return attempt(
        lambda: (dist.all_reduce(tensor) if rank else dist.broadcast(tensor, 0), tensor.cpu(), torch.tpu.synchronize())
    )


def what_the_flight_recorder_saw(rank: int, tensor: torch.Tensor) -> object:
    collectives_differ(rank, tensor)
    trace = json.loads(_dump_fr_trace_json(backend="tpu"))
    return [[entry["profiling_name"], entry["state"], entry.get("duration_ms")] for entry in trace["entries"]]


def the_duration_of_a_collective(rank: int, tensor: torch.Tensor) -> object:
    hosts = group_of_hosts()
    if rank == 1:
        dist.barrier(hosts)
    work = dist.all_reduce(tensor, async_op=True)
    early = attempt(lambda: work._get_duration()) if rank == 0 else None
    if rank == 0:
        dist.barrier(hosts)
    torch.tpu.synchronize()
    return [early, work._get_duration()]


def the_host_waits_too_short(rank: int, tensor: torch.Tensor) -> object:
    if rank == 1:
        time.sleep(1)
    work = dist.all_reduce(tensor, async_op=True)
    error = attempt(lambda: work.wait(datetime.timedelta(milliseconds=50))) if rank == 0 else None
    return [error, tensor.tolist()]


def a_message_does_not_come(rank: int, tensor: torch.Tensor) -> object:
    hosts = group_of_hosts()
    error = attempt(lambda: (dist.recv(tensor, 1), tensor.cpu())) if rank == 0 else None
    dist.barrier(hosts)
    return error


def a_message_never_comes(rank: int, tensor: torch.Tensor) -> object:
    if rank == 0:
        dist.irecv(torch.empty(3, device=DEVICE), 1)
    return "ends"


def the_sender_ends(rank: int, tensor: torch.Tensor) -> object:
    """Rank 0 destroys the group while the program that computes the message is being compiled."""
    if rank == 1:
        received = torch.empty(8, 8, device=DEVICE)
        dist.irecv(received, 0)
        return received.sum().item()
    message = torch.ones(8, 8, device=DEVICE)
    for size in range(8, 48):
        wide = torch.ones(8, size, device=DEVICE) / size
        message = (message.sin().sigmoid() * 0 + 1) * (wide @ wide.t()) * size
    work = dist.isend(message, 1)
    completed = work.is_completed()
    dist.destroy_process_group()
    return [completed, work.is_completed()]


def the_process_ends_before_a_message(rank: int, tensor: torch.Tensor) -> object:
    """The group is destroyed, and the process ends, while a program waits for a message. Its lane is used by no one
    else then."""
    if rank == 0:
        time.sleep(0.5)
        dist.isend(tensor, 1)
        return "sent"
    received = torch.empty(4, device=DEVICE)
    dist.irecv(received, 0)
    KEPT.append(torch.ones(4, device=DEVICE)[received.long().clamp(0, 3)])
    torch.tpu.memory_allocated()
    dist.destroy_process_group()
    return "received"


def what_is_refused(rank: int, tensor: torch.Tensor) -> object:
    other = dist.new_group([1])
    found = [attempt(lambda: dist.all_reduce(tensor, group=other)) if rank == 0 else ""]
    dist.destroy_process_group()
    return [*found, attempt(lambda: dist.all_reduce(tensor))]


def see(case: str, mode: str) -> object:
    torch.tpu.eager_mode = mode
    dist.init_process_group(timeout=datetime.timedelta(seconds=2 if case in WAIT_IN_VAIN else 60))
    tensor = torch.ones(4, device=DEVICE)
    dist.all_reduce(tensor)
    torch.tpu.synchronize()
    dist.barrier()
    found = globals()[case](dist.get_rank(), tensor)
    if dist.is_initialized():
        dist.destroy_process_group()
    return found
