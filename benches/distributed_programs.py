#!/usr/bin/env python3
"""How many programs do the ranks of DDP and of FSDP2 compile, from a cold cache? Do they stop after the first steps?

    python benches/distributed_programs.py [--ranks 4] [--steps 12] [--modes strict,fused]

Ranks share the folder of compiled programs. "compiled per program" is 1 where no two ranks compile the same program.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from distributed_step import new_model, on_ranks, sharded_model, step_of
from torch.nn.parallel import DistributedDataParallel

# From the step after this one on, nothing should be compiled.
SETTLED = 5
# The number of characters in the file name of a compiled program.
NAME_LENGTH = 64


def work(kind: str, mode: str, steps: int) -> None:
    """Runs in each rank. Rank 0 prints the counts of all ranks, for each step."""
    module = torch.get_device_module("tpu")
    module.eager_mode = mode
    dist.init_process_group()
    model = DistributedDataParallel(new_model("tpu")) if kind == "ddp" else sharded_model("tpu")
    step = step_of(model, "tpu")
    counts = [(0, 0)]
    for _ in range(steps):
        step()
        module.synchronize()
        stats = module.cache_stats()
        counts.append((stats["compiles"], stats["compiles"] + stats["disk_hits"]))
    of_ranks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(of_ranks, counts)
    if dist.get_rank() == 0:
        print(json.dumps(of_ranks))
    dist.destroy_process_group()


def count(kind: str, mode: str, ranks: int, steps: int) -> tuple[int, list[list[list[int]]]]:
    """The programs that all ranks leave on disk. For each rank and step: the programs it has compiled so far, and those
    it has compiled or found."""
    with tempfile.TemporaryDirectory() as cache:
        # Programs that take the place of others in the background would be counted with the step that they end in.
        variables = {"TORCHTPU_CACHE_DIR": cache, "TORCHTPU_COMPILE": "wait"}
        counts = on_ranks(ranks, __file__, "--worker", kind, mode, "--steps", str(steps), **variables)
        programs = sum(len(path.name) == NAME_LENGTH for path in Path(cache).rglob("*"))
    return programs, counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=4, help="processes (4)")
    parser.add_argument("--steps", type=int, default=12, help="training steps (12)")
    parser.add_argument("--modes", default="strict,fused", help="eager modes (strict,fused)")
    parser.add_argument("--worker", nargs=2, metavar=("KIND", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        kind, mode = options.worker
        work(kind, mode, options.steps)
        return
    print(f"{options.ranks} ranks, a cold cache, {options.steps} steps")
    print(f"{'':16}{'programs':>12}{'compiled by all':>17}{'per program':>13}{f'after step {SETTLED}':>14}")
    for mode in options.modes.split(","):
        for kind in ("ddp", "fsdp2"):
            programs, ranks = count(kind, mode, options.ranks, options.steps)
            compiled = sum(rank[-1][0] for rank in ranks)
            late = sum(rank[-1][1] - rank[min(SETTLED, options.steps)][1] for rank in ranks)
            print(f"{mode:8}{kind:8}{programs:12}{compiled:17}{compiled / programs:13.2f}{late:14}")


if __name__ == "__main__":
    main()
