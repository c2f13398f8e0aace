"""What ranks do in test_programs.py in steps whose collectives are parts of their programs."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torchtpu.distributed import spmd_safe

from tests.distributed import training
from tests.distributed.worker import DEVICE, group_of_hosts


def begin() -> int:
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    return dist.get_rank()


def reasons_of(step: Callable[[], Any]) -> list[str]:
    """Why each of the programs of a step has run."""
    with torch.tpu.explain() as explanation:
        step()
    return [run["reason"] for run in explanation.runs]


def steps_as_one_program(mode: str, wrapper: str) -> dict[str, Any]:
    """Trains with the step as one program and with collectives cut from it, on the same rows."""
    torch.tpu.eager_mode = mode
    rank = begin()
    # A view at an offset that depends on the rank would make two programs.
    rows = slice(4 * rank, 4 * rank + 4)
    data = [(inputs[rows].to(DEVICE), targets[rows].to(DEVICE)) for inputs, targets in training.batches(1)]

    def losses(spmd: bool) -> tuple[list[float], list[int], list[str]]:
        model = training.new_model().to(DEVICE)
        if wrapper == "ddp":
            model = training.DistributedDataParallel(model)
        else:
            training.sharded(model, training.mesh_of(dist.group.WORLD))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.tpu.compile_step(spmd=spmd)
        def step(inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(model(inputs), targets)
            loss.backward()
            optimizer.step()
            return loss.detach()

        found, runs, reasons = [], [], []
        for inputs, targets in data:
            with torch.tpu.explain() as explanation:
                found.append(step(inputs, targets).item())
            runs.append(len(explanation.runs))
            reasons = [run["reason"] for run in explanation.runs]
        return found, runs, reasons

    outcomes = {name: losses(name == "inside") for name in ("cut", "inside")}
    dist.destroy_process_group()
    return outcomes


def what_cuts_a_step() -> dict[str, Any]:
    """A step that records an event and uploads a tensor, without and with a collective of another group."""
    rank = begin()
    alone = next(
        group for group in [dist.new_group([0]), dist.new_group([1])] if rank in dist.get_process_group_ranks(group)
    )
    event = torch.Event(DEVICE)
    found = {}
    for name in ("one group", "two groups"):

        @torch.tpu.compile_step(spmd=True)
        def step(x: torch.Tensor, group: dist.ProcessGroup | None) -> torch.Tensor:
            dist.all_reduce(x)
            for _ in range(100):
                x = x + 1
            event.record()
            x = x + torch.arange(4.0).to(DEVICE)
            dist.all_reduce(x, group=group)
            return x * 2

        x = torch.ones(4, device=DEVICE)
        results: list[torch.Tensor] = []
        group = alone if name == "two groups" else None
        reasons = reasons_of(lambda x=x, group=group, results=results: results.append(step(x, group)))
        event.synchronize()
        found[name] = results[0].tolist(), reasons, event.query()
    dist.destroy_process_group()
    return found


def a_promise_is_broken(how: str) -> dict[str, Any]:
    """The first rank runs another program than the others."""
    rank = begin()
    kept = []

    @torch.tpu.compile_step(spmd=True)
    def step(x: torch.Tensor) -> torch.Tensor:
        wave = x.sin() if how == "operator" and rank == 0 else x.cos()
        if how == "result" and rank == 0:
            kept.append(wave)
        dist.all_reduce(wave)
        wave = wave * 2
        return wave.sum()

    error = ""
    try:
        step(torch.ones(4, device=DEVICE)).item()
    except RuntimeError as raised:
        error = str(raised)
    after = torch.ones(4, device=DEVICE)
    dist.all_reduce(after)
    together = torch.ones(4, device=DEVICE)
    with spmd_safe():
        together = together + 1
        dist.all_reduce(together)
    found = {"error": error, "after": after.tolist(), "together": together.tolist()}
    dist.destroy_process_group()
    return found


def a_rank_does_not_come() -> str:
    """The second rank leaves out a step."""
    dist.init_process_group(timeout=datetime.timedelta(seconds=4))
    hosts, error = group_of_hosts(), ""
    if dist.get_rank() == 0:
        x = torch.ones(4, device=DEVICE)
        with spmd_safe():
            dist.all_reduce(x)
            x = x * 2
        try:
            x.tolist()
        except RuntimeError as raised:
            error = str(raised)
    dist.barrier(hosts)
    return error
