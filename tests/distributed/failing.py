"""What a rank sees when another one fails; test_failures.py runs it under torchrun. Prints what it sees."""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

DEVICE = torch.device("tpu")


def tell(what: str) -> None:
    # One write, so that the lines of two ranks do not mix.
    os.write(1, f"rank {os.environ['RANK']}: {what}\n".encode())


def attempt(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception as error:
        tell(f"{type(error).__name__}: {error}".replace("\n", " "))
    else:
        tell("no error")
    tell(f"still computes {(torch.ones(2, device=DEVICE) + 1).sum().item()}")


def a_rank_dies(rank: int, tensor: torch.Tensor) -> None:
    if rank == 1:
        os._exit(0)  # torchrun ends the others where a rank says that it failed
    attempt(lambda: (dist.all_reduce(tensor), tensor.cpu()))


def a_rank_is_late(rank: int, tensor: torch.Tensor) -> None:
    if rank == 1:
        time.sleep(7)
    else:
        attempt(lambda: (dist.all_reduce(tensor), tensor.cpu()))


def shapes_differ(rank: int, tensor: torch.Tensor) -> None:
    other = torch.ones(4 + 2 * rank, device=DEVICE)
    attempt(lambda: (dist.all_reduce(other), other.cpu()))
    dist.all_reduce(tensor)
    tell(f"then {tensor.tolist()}")


def collectives_differ(rank: int, tensor: torch.Tensor) -> None:
    attempt(
        lambda: (dist.all_reduce(tensor) if rank else dist.broadcast(tensor, 0), tensor.cpu(), torch.tpu.synchronize())
    )


def a_message_never_comes(rank: int, tensor: torch.Tensor) -> None:
    if rank == 0:
        dist.irecv(torch.empty(3, device=DEVICE), 1)
    tell("ends")
    sys.exit(0)


if __name__ == "__main__":
    torch.tpu.eager_mode = sys.argv[2]
    dist.init_process_group(timeout=datetime.timedelta(seconds=4))
    value = torch.ones(4, device=DEVICE)
    dist.all_reduce(value)
    torch.tpu.synchronize()
    dist.barrier()
    globals()[sys.argv[1]](dist.get_rank(), value)
    dist.destroy_process_group()
    tell("ends")
