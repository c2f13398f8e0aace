"""Ranks that go their own ways: each takes branches of its own at random, and all meet in collectives of three
overlapping groups. Whole numbers, so that what each rank must have is known exactly."""

from __future__ import annotations

import datetime
import os
import random
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

DEVICE = torch.device("tpu")
RANKS, SIZE, PRIME = 3, 32, 997
GROUPS = ((0, 1), (1, 2), (0, 1, 2))
# A few sequences of operators, so that a few programs are compiled.
BRANCHES: tuple[Callable[[torch.Tensor], torch.Tensor], ...] = (
    lambda x: x,
    lambda x: (x * 3 + 1) % PRIME,
    lambda x: (x + x.flip(0)) % PRIME,
    lambda x: ((x * x) % PRIME + 5) % PRIME,
    lambda x: x.roll(3) + 1,
    lambda x: torch.where(x > 400, x - 400, x * 2),
)


def start(rank: int) -> torch.Tensor:
    return torch.arange(SIZE, dtype=torch.int32) + 100 * rank


def steps(seed: int, steps: int) -> int:
    """Runs so many steps; at the end, and now and then before, each rank has what the CPU says. Returns how often."""
    common = random.Random(seed)
    own = [random.Random(f"{seed} {rank}") for rank in range(RANKS)]
    delays = random.Random(f"{seed} delays {os.environ['RANK']}")
    delayed = seed % 2 == 1
    torch.tpu.eager_mode = "fused"
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    groups = [dist.new_group(ranks) for ranks in GROUPS]
    me = dist.get_rank()
    expected = [start(rank) for rank in range(RANKS)]
    x = start(me).to(DEVICE)
    compared = 0
    for step in range(steps):
        # Some ranks do nothing, some much: which, no other rank asks.
        for rank in range(RANKS):
            for _ in range(own[rank].randrange(3)):
                branch = own[rank].choice(BRANCHES)
                expected[rank] = branch(expected[rank])
                if rank == me:
                    x = branch(x)
        if delayed and delays.random() < 0.1:
            time.sleep(delays.uniform(0, 0.05))
        which, kind = common.randrange(3), common.randrange(6)
        ranks = GROUPS[which]
        expected_of_all = torch.stack([expected[rank] for rank in ranks])
        if kind == 0:
            after = [expected_of_all.sum(0, dtype=torch.int32) % PRIME] * len(ranks)
        elif kind == 1:
            after = [expected_of_all.amax(0)] * len(ranks)
        elif kind == 2:
            after = [expected_of_all[-1]] * len(ranks)
        elif kind == 3:
            after = [expected_of_all.sum(0, dtype=torch.int32) % PRIME] * len(ranks)
        elif kind == 4:
            part = expected_of_all.sum(0, dtype=torch.int32).chunk(2)[0] % PRIME
            after = [torch.cat([part, part])] * len(ranks)
        else:
            after = [*(expected[rank] for rank in ranks[:-1]), expected[ranks[0]]]
        if me in ranks:
            x = meet(kind, x, groups[which], ranks)
        for rank, value in zip(ranks, after, strict=True):
            expected[rank] = value
        if own[me].random() < 0.02 or step == steps - 1:
            assert x.tolist() == expected[me].tolist(), f"step {step}"
            compared += 1
        # The others draw as much.
        for rank in range(RANKS):
            if rank != me:
                own[rank].random()
    dist.destroy_process_group()
    return compared


def meet(kind: int, x: torch.Tensor, group: dist.ProcessGroup, ranks: tuple[int, ...]) -> torch.Tensor:
    x = x.clone()
    if kind == 0:
        dist.all_reduce(x, group=group)
        return x % PRIME
    if kind == 1:
        dist.all_reduce(x, dist.ReduceOp.MAX, group)
    elif kind == 2:
        dist.broadcast(x, ranks[-1], group)
    elif kind == 3:
        whole = torch.empty(len(ranks) * SIZE, dtype=x.dtype, device=DEVICE)
        dist.all_gather_into_tensor(whole, x, group)
        return whole.view(len(ranks), SIZE).sum(0, dtype=torch.int32) % PRIME
    elif kind == 4:
        # Of as many parts as there are ranks, the first.
        half = x.chunk(2)[0]
        part = torch.empty_like(half)
        dist.reduce_scatter_tensor(part, half.repeat(len(ranks)), group=group)
        part = part % PRIME
        return torch.cat([part, part])
    elif dist.get_rank() == ranks[0]:
        dist.isend(x, ranks[-1], group)
    elif dist.get_rank() == ranks[-1]:
        dist.recv(x, ranks[0], group)
    return x
