"""Runs programs under torchrun and says what came of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def python(arguments: list[str], **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python with these arguments."""
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )


def torchrun(arguments: list[str], ranks: int = 2, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a script, or a module after `-m`, on so many ranks of this machine."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    return python([*launcher, *arguments], **environment)
