"""Runs programs under torchrun and says what came of them."""

from __future__ import annotations

import json
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


def check_cases(module: str, mode: str, folder: Path, ranks: int = 2) -> None:
    """Runs the cases of a module on several ranks; all of them must pass on all ranks."""
    finished = torchrun(["-m", "tests.distributed.worker", module, mode, str(folder)], ranks)
    found = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    failed = {name: text for outcomes in found for name, text in outcomes.items() if text is not None}
    assert not failed, "\n".join(f"{name}: {text}" for name, text in failed.items())
    assert finished.returncode == 0, finished.stderr
    assert len(found) == ranks
    assert all(found)
