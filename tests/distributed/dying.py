"""Ranks that run collectives on overlapping groups until one of them is killed at a moment that a seed decides."""

from __future__ import annotations

import datetime
import os
import random
import signal
import time
from typing import Any

import torch
import torch.distributed as dist

DEVICE = torch.device("tpu")
TIMEOUT = 4.0
GROUPS = ((0, 1), (1, 2), (0, 1, 2))


def victim_of(seed: int) -> int:
    return random.Random(seed).randrange(3)


def trial(seed: int) -> dict[str, Any]:
    """Runs until an error comes, or half a minute has gone. What the error says, and what the device computes then."""
    choose = random.Random(seed)
    victim = victim_of(seed)
    killed = choose.uniform(0.05, 2.5)
    started = time.monotonic()
    if int(os.environ["RANK"]) == victim:
        signal.setitimer(signal.ITIMER_REAL, killed)  # the signal ends the process, whatever it does
    torch.tpu.eager_mode = choose.choice(["strict", "fused"])
    error = None
    try:
        dist.init_process_group(timeout=datetime.timedelta(seconds=TIMEOUT))
        run(choose, started + 30)
    except RuntimeError as caught:
        error = f"{type(caught).__name__}: {caught}"
    computed = (torch.ones(2, device=DEVICE) + 1).sum().item()
    if dist.is_initialized():
        dist.destroy_process_group()
    return {"error": error, "computed": computed}


def run(choose: random.Random, end: float) -> None:
    groups = [dist.new_group(ranks, timeout=datetime.timedelta(seconds=TIMEOUT)) for ranks in GROUPS]
    x = torch.ones(64, 8, device=DEVICE)
    while time.monotonic() < end:
        which, kind, reads = choose.randrange(3), choose.randrange(5), choose.random() < 0.3
        if dist.get_rank() not in GROUPS[which]:
            continue
        group, ranks = groups[which], GROUPS[which]
        x = x.sin() + 1
        if kind == 0:
            dist.all_reduce(x, dist.ReduceOp.MAX, group)
        elif kind == 1:
            dist.broadcast(x, ranks[0], group)
        elif kind == 2:
            whole = torch.empty(64 * len(ranks), 8, device=DEVICE)
            dist.all_gather_into_tensor(whole, x, group)
            x = whole[:64]
        elif kind == 3:
            dist.barrier(group)
        elif dist.get_rank() == ranks[0]:
            dist.send(x, ranks[1])
        elif dist.get_rank() == ranks[1]:
            dist.recv(x, ranks[0])
        if reads:
            x.sum().item()
