"""What each rank runs under torchrun: the cases of a module, one after another, each in a process group of its own.

    torchrun --nproc-per-node 2 -m tests.distributed.worker collectives strict OUTCOMES

Each rank writes OUTCOMES/<rank>.json: for each case None, or the traceback of what failed.
"""

from __future__ import annotations

import datetime
import importlib
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist

DEVICE = torch.device("tpu")
Case = Callable[[dist.ProcessGroup], None]


def main(module: str, mode: str, folder: str) -> None:
    torch.tpu.eager_mode = mode
    dist.init_process_group(timeout=datetime.timedelta(seconds=60))
    cases: dict[str, Case] = importlib.import_module(f"tests.distributed.{module}").CASES
    outcomes: dict[str, str | None] = {}
    for name, case in cases.items():
        torch.manual_seed(0)
        group = dist.new_group(timeout=datetime.timedelta(seconds=30))
        try:
            case(group)
            outcomes[name] = None
        except Exception:
            outcomes[name] = traceback.format_exc()
        (Path(folder) / f"{dist.get_rank()}.json").write_text(json.dumps(outcomes))
    dist.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
