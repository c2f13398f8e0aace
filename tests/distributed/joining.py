"""What ranks do in test_joining.py: collectives in Fused that join programs by a vote of the ranks."""

from __future__ import annotations

import datetime
import random
import time
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F

from tests.distributed import training
from tests.distributed.worker import DEVICE

REFUSED = "the ranks have not all recorded the same program"
PRIME = 997


def begin(seconds: float = 60) -> int:
    torch.tpu.eager_mode = "fused"
    dist.init_process_group(timeout=datetime.timedelta(seconds=seconds))
    return dist.get_rank()


def steps_join(wrapper: str, steps: int) -> dict[str, Any]:
    """Trains on rows of this rank; the losses over all ranks, and how many programs each step has run."""
    rank = begin()
    data = (training.batches(dist.get_world_size()) * steps)[:steps]
    rows = slice(rank * training.ROWS, (rank + 1) * training.ROWS)
    # Each rank has its rows at the same offset: that of a view is a part of a program.
    data = [(inputs[rows].to(DEVICE), targets[rows].to(DEVICE)) for inputs, targets in data]
    model = training.new_model().to(DEVICE)
    if wrapper == "ddp":
        model = training.DistributedDataParallel(model, bucket_cap_mb=0.001)
    else:
        training.sharded(model, training.mesh_of(dist.group.WORLD))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses, runs, compiles, reasons = [], [], [], []
    for inputs, targets in data:
        with torch.tpu.explain() as explanation:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            total = loss.detach().clone()
            dist.all_reduce(total, dist.ReduceOp.AVG)
            losses.append(total.item())
        runs.append(len(explanation.runs))
        compiles.append(len(explanation.compiles))
        reasons = [run["reason"] for run in explanation.runs]
    dist.destroy_process_group()
    return {"losses": losses, "runs": runs, "compiles": compiles, "reasons": reasons}


def losses_of_one_process(ranks: int, steps: int) -> list[float]:
    """The same on the CPU, with all rows."""
    data = (training.batches(ranks) * steps)[:steps]
    return [loss.item() for loss in training.train(training.new_model(), data)]


def steps_diverge(seed: int, steps: int, most_strays: float) -> dict[str, int]:
    """A loop in which ranks sometimes leave what all do, and sometimes pause. The values are whole numbers, and each
    rank knows what all must have. Two groups share ranks. Returns how many programs had collectives with other
    operators, and how many were cut at them."""
    rank, size = begin(), dist.get_world_size()
    inner = dist.new_group([0, 1])
    own = [random.Random(f"{seed} {each}") for each in range(size)]
    pauses = random.Random(f"{seed} pauses {rank}")
    expected = [torch.arange(32, dtype=torch.int32) + each for each in range(size)]
    x = expected[rank].to(DEVICE)
    with torch.tpu.explain() as explanation:
        for step in range(steps):
            # A few steps in a row are alike, so that collectives join.
            strays = [own[each].random() < (most_strays if (step // 16) % 2 else 0.02) for each in range(size)]
            reads = [own[each].random() < 0.5 for each in range(size)]
            for half in range(2):
                for each in range(size):
                    if strays[each] and half == 1:
                        expected[each] = expected[each] * 2 % PRIME
                    expected[each] = (expected[each] * 3 + 1) % PRIME
                if strays[rank] and half == 1:
                    x = x * 2 % PRIME
                x = (x * 3 + 1) % PRIME
                x = reduced(x, expected, range(size), dist.group.WORLD)
                if strays[rank] and reads[rank]:
                    # The host waits in the middle of what the others record as one program.
                    assert x.tolist() == expected[rank].tolist(), f"step {step}"
                if half == 0 and step >= steps // 2:
                    x = reduced(x, expected, (0, 1), inner)
            if pauses.random() < 0.02:
                time.sleep(0.3)
            assert x.tolist() == expected[rank].tolist(), f"step {step}"
    reasons = [run["reason"] for run in explanation.runs]
    operators = [[name for name, _ in explanation.programs[run["program"]]["operators"]] for run in explanation.runs]
    joined = sum("ALLREDUCE" in names and len(names) > 1 for names in operators)
    dist.destroy_process_group()
    return {"joined": joined, "cut": sum(REFUSED in reason for reason in reasons)}


def reduced(x: torch.Tensor, expected: list[torch.Tensor], ranks: Any, group: dist.ProcessGroup | None) -> torch.Tensor:
    """The sum over ranks of what they have, on the device and as the CPU says."""
    total = torch.stack([expected[each] for each in ranks]).sum(0, dtype=torch.int32) % PRIME
    for each in ranks:
        expected[each] = total
    if dist.get_rank() not in ranks:
        return x
    x = x.clone()
    dist.all_reduce(x, group=group)
    return x % PRIME


def a_rank_leaves(after: int) -> dict[str, Any]:
    """One rank ends after a few steps. The others go on, and then compute by themselves."""
    rank = begin(8)
    error, done = "", 0
    x = torch.ones(4, device=DEVICE)
    try:
        for step in range(2 * after):
            if rank == 1 and step == after:
                break
            x = x * 2
            dist.all_reduce(x, dist.ReduceOp.AVG)
            x = x / 2
            x.tolist()
            done += 1
    except RuntimeError as raised:
        error = str(raised)
    value = (torch.ones(4, device=DEVICE) + 1).tolist()
    dist.destroy_process_group()
    return {"error": error, "done": done, "value": value}


def hosts_wait_for_each_other(steps: int) -> dict[str, Any]:
    """One rank reads a result before the ranks meet on the host, the other after: a collective that waits in a program
    would keep both waiting. Returns the values, and how many steps were slow."""
    rank = begin()
    host = dist.new_group(backend="gloo")
    values, seconds = [], []
    for step in range(steps):
        begun = time.monotonic()
        x = torch.full((4,), float(step + rank), device=DEVICE)
        dist.all_reduce(x)
        if rank == 0:
            values.append(x[0].item())
        dist.barrier(host)
        if rank == 1:
            values.append(x[0].item())
        seconds.append(time.monotonic() - begun)
    dist.destroy_process_group()
    return {"values": values, "paused": sum(each > 0.19 for each in seconds)}


def messages_between(steps: int) -> list[float]:
    """A rank sends what a collective has given, and the other computes with it in what could be the same program."""
    rank = begin()
    values = []
    for step in range(steps):
        x = torch.full((4,), float(step + rank), device=DEVICE)
        y = torch.full((4,), 100.0, device=DEVICE)
        if rank == 1:
            dist.irecv(y, 0)
        x = x + 1
        dist.all_reduce(x)
        z = x * 2
        w = y + 1
        if rank == 0:
            dist.isend(z, 1)
        values.append(w[0].item())
        values.append(z[0].item())
    dist.destroy_process_group()
    return values


def results_are_not_used(steps: int) -> list[float]:
    """A rank drops the result of a collective, and another ends right after the last one."""
    rank = begin()
    values = []
    for step in range(steps):
        x = torch.full((4,), float(step), device=DEVICE)
        x = x + 1
        dist.all_reduce(x)
        if rank == 0:
            values.append((x * 2)[0].item())
        del x
    if rank == 0:
        dist.destroy_process_group()
    return values
