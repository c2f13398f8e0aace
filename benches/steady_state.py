#!/usr/bin/env python3
"""What stays constant during a training: memory, and the number of compiled programs.

- memory: an MLP for 1000 steps. The process's memory and the device's live bytes after step 100 and at the end,
  and the largest memory of the process, compared with torch_tpu.
- numbers: learning rate, momentum and loss scale change in every step. Compiles after step 5.
- last batch: the last batch of each epoch is smaller. Compiles in each epoch.
- shared cache: processes that start together with an empty cache. Compiles of all of them over those of one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from contenders import CONTENDERS, Answer, Contender, Process, open_torch, serve


def _resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / 1e6


def memory(system: str, mode: str) -> dict[str, float]:
    import resource

    import torch
    from models import make_mlp

    device, wait = open_torch(system, mode)
    model = make_mlp().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    marks = {}
    for step in range(1, 1001):
        inputs, targets = torch.randn(64, 784).to(device), torch.randint(10, (64,)).to(device)
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
        if step in (100, 1000):
            wait()
            live = _tpu().memory_allocated() / 1e6 if system == "torchtpu" else float("nan")
            marks[step] = (_resident_mb(), live)
    return {
        "mb_100": marks[100][0],
        "mb_1000": marks[1000][0],
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "live_100": marks[100][1],
        "live_1000": marks[1000][1],
    }


def numbers(system: str, mode: str) -> dict[str, float]:
    import torch
    from models import make_mlp

    device, wait = open_torch(system, mode)
    model = make_mlp().to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler(device.type, init_scale=1024.0)
    inputs, targets = torch.randn(64, 784).to(device), torch.randint(10, (64,)).to(device)
    before = 0
    for step in range(1, 31):
        for group in optimizer.param_groups:
            group["lr"], group["momentum"] = 0.1 / step, 0.9 + 0.001 * step
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(torch.nn.functional.cross_entropy(model(inputs), targets)).backward()
        scaler.step(optimizer)
        scaler.update(1024.0 + step)
        wait()
        if step == 5:
            before = _made()
    return {"compiles_after_step_5": _made() - before}


def last_batch(system: str, mode: str) -> dict[str, float]:
    import torch
    from models import make_mlp

    device, wait = open_torch(system, mode)
    model = make_mlp().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data, compiles = torch.randn(64 * 5 + 17, 784), []
    for _ in range(5):
        before = _made()
        for inputs in data.split(64):
            optimizer.zero_grad(set_to_none=True)
            model(inputs.to(device)).square().mean().backward()
            optimizer.step()
        wait()
        compiles.append(_made() - before)
    return {f"epoch_{epoch}": count for epoch, count in enumerate(compiles, 1)}


def one_of_many(system: str, mode: str) -> dict[str, float]:
    import torch
    from models import Gpt, make_batch

    device, wait = open_torch(system, mode)
    torch.manual_seed(0)
    model = Gpt().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(3):
        inputs, targets = make_batch("gpt")
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device)).backward()
        optimizer.step()
        wait()
    return {"compiles": _tpu().cache_stats()["compiles"]}


def _tpu() -> Any:
    from torchtpu import tpu

    return tpu


def _made() -> int:
    stats = _tpu().cache_stats()
    return stats["compiles"] + stats["disk_hits"]


WORKS: dict[str, Callable[[str, str], dict[str, float]]] = {
    "memory": memory,
    "numbers": numbers,
    "last batch": last_batch,
    "shared cache": one_of_many,
}


def answers(contender: Contender, work: str, cache: Path, count: int = 1) -> list[Answer]:
    """The measurements of processes that run in parallel."""
    processes = [Process(contender, Path(__file__), work, 2, cache) for _ in range(count)]
    try:
        with ThreadPoolExecutor(count) as pool:
            return list(pool.map(Process.ask, processes))
    finally:
        for process in processes:
            process.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="all", help='"all" (torch_tpu, for memory) or "none"')
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        system, mode, work = options.serve
        serve(lambda: WORKS[work](system, mode))
        return 0
    ours = [each for each in CONTENDERS if each.system == "torchtpu" and each.mode in ("strict", "fused")]
    peers = [each for each in CONTENDERS if each.system == "torch_tpu"] if options.peers != "none" else []
    with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as name:
        folder = Path(name)
        for work in ("memory", "numbers", "last batch"):
            print(f"\n{work}")
            for contender in [*ours, *(peers if work == "memory" else [])]:
                try:
                    (figures,) = answers(contender, work, folder / contender.mode)
                except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
                    print(f"  {contender.name} is left out: {error}")
                    continue
                print(f"  {contender.name:<18}" + "".join(f"  {key} {value:g}" for key, value in figures.items()))
        print("\nshared cache: compiles of all processes")
        for contender in ours:
            totals = {}
            for count in (1, 2, 4):
                each = answers(contender, "shared cache", folder / f"{contender.mode}-{count}", count)
                totals[count] = sum(figures["compiles"] for figures in each)
            ratios = "".join(
                f"  {count} processes {total:g} ({total / totals[1]:.2f})" for count, total in totals.items()
            )
            print(f"  {contender.name:<18}{ratios}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
