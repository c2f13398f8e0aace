"""Runs preflight again with a change, in a process of its own: a process has one device that computes nothing."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchtpu.preflight.compiler import CompilerError


@dataclasses.dataclass(frozen=True)
class Rerun:
    """A script and how it is judged."""

    topology: str
    mesh: str
    script: str
    arguments: tuple[str, ...]
    steps: int
    mode: str
    deep: bool
    time_limit: float

    def __call__(self, change: str, what_if: Sequence[str] = ()) -> dict[str, Any]:
        """The report, as for JSON, of the script with a change. CompilerError, with the reason, if there is none."""
        with tempfile.TemporaryDirectory(prefix="torchtpu-preflight-") as folder:
            found = Path(folder) / "report.json"
            command = [sys.executable, "-m", "torchtpu", "preflight", "--no-suggestions", "--change", change]
            command += ["--chip", self.topology, "--steps", str(self.steps), "--mode", self.mode, "--json", str(found)]
            command += ["--time-limit", str(self.time_limit), "--what-if", ",".join(what_if)]
            command += ["--mesh", self.mesh] if self.mesh else []
            command += ["--deep"] if self.deep else []
            finished = subprocess.run(
                [*command, self.script, *self.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            if not found.is_file():
                last = finished.stderr.strip().splitlines()
                raise CompilerError(f"{change}: " + (last[-1] if last else f"ended with {finished.returncode}"))
            report: dict[str, Any] = json.loads(found.read_text())
        if report["failure"]:
            raise CompilerError(f"{change}: {report['failure']}")
        return report
