"""Records a script again with a change, in a process of its own: a process has one device that computes nothing."""

from __future__ import annotations

import dataclasses
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from torchtpu.preflight.compiler import CompilerError
from torchtpu.preflight.recording import Recording


@dataclasses.dataclass(frozen=True)
class Rerun:
    """A script and how it is recorded."""

    topology: str
    mesh: str
    script: str
    arguments: Sequence[str]
    steps: int
    mode: str
    time_limit: float
    assume: Mapping[str, int]

    def __call__(self, change: str) -> Recording:
        """The script's recording with a change. CompilerError, with the reason, if there is none."""
        with tempfile.TemporaryDirectory(prefix="torchtpu-preflight-") as folder:
            file = Path(folder) / "recording"
            command = [sys.executable, "-m", "torchtpu", "preflight", "--recording", str(file), "--change", change]
            command += ["--chip", self.topology, "--steps", str(self.steps), "--mode", self.mode]
            command += ["--time-limit", str(self.time_limit)]
            command += ["--mesh", self.mesh] if self.mesh else []
            command += [word for line, number in self.assume.items() for word in ("--assume", f"{line}={number}")]
            finished = subprocess.run(
                [*command, self.script, *self.arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
            )
            if not file.is_file():
                last = finished.stderr.strip().splitlines()
                raise CompilerError(f"{change}: " + (last[-1] if last else f"ended with {finished.returncode}"))
            recorded: Recording = pickle.loads(file.read_bytes())
        if recorded.failure:
            raise CompilerError(f"{change}: {recorded.failure}")
        return recorded
