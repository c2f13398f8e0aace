"""What each rank runs: the cases of a module, one after another, each in a process group of its own."""

from __future__ import annotations

import datetime
import traceback
from collections.abc import Callable

import torch
import torch.distributed as dist

DEVICE = torch.device("tpu")
Case = Callable[[dist.ProcessGroup], None]


def group_of_hosts() -> dist.ProcessGroup:
    """For a barrier that works when the device's groups have failed."""
    return dist.new_group(backend="gloo", timeout=datetime.timedelta(seconds=60))


def run_cases(cases: dict[str, Case], mode: str, *names: str) -> dict[str, str | None]:
    """Runs the cases of these names, or all. For each case None, or the traceback of its failure."""
    torch.tpu.eager_mode = mode
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    outcomes: dict[str, str | None] = {}
    for name in names or cases:
        torch.manual_seed(0)
        group = dist.new_group(timeout=datetime.timedelta(seconds=30))
        try:
            cases[name](group)
            outcomes[name] = None
        except Exception:
            outcomes[name] = traceback.format_exc()
    dist.destroy_process_group()
    return outcomes
