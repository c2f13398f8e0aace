"""Folders of compiled programs: a training in another process fills one, and the command line reads it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from tests import forks
from tests.helpers import run_python

# A short training. Prints the losses and the counters.
TRAIN = """
import json, torch
torch.manual_seed(0)
torch.tpu.eager_mode = "strict"
model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
losses = []
for step in range(3):
    optimizer.zero_grad(set_to_none=True)
    loss = torch.nn.functional.cross_entropy(model(torch.randn(4, 6).to("tpu")), torch.arange(4).to("tpu") % 3)
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())
print(json.dumps({"losses": losses, **torch.tpu.cache_stats()}) + "\\n", end="")
"""


def train(folder: Path, **environment: str) -> tuple[dict[str, Any], str]:
    """Trains in another process. Returns its output and its warnings."""
    finished = run_python(TRAIN, TORCHTPU_CACHE_DIR=str(folder), **environment)
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout), finished.stderr


def entries(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "programs").iterdir() if not path.name.startswith("."))


def command(folder: Path, *arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m torchtpu cache`."""
    variables = {**os.environ, "TORCHTPU_CACHE_DIR": str(folder), **environment}
    return forks.server().run(["-m", "torchtpu", "cache", *map(str, arguments)], variables)
