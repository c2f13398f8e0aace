"""Asks libtpu's compiler about a program, in a process of its own, and keeps what it writes down on the way.

The compiler first optimizes, schedules and assigns memory, which takes seconds, and then generates code, which takes
minutes. What it writes down after the first part says what fits and where memory goes. The second part adds the
compiler's estimate of the cycles of each fusion. A compile cannot be stopped half way, so the process is ended instead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from torchtpu.preflight.recording import DRY, Program

# What the compiler writes when memory is assigned, in this order, and when code is generated.
SCHEDULED = "after_optimizations_after_buffer_assignment.txt"
ASSIGNMENT = "after_optimizations-buffer-assignment.txt"
LIVE_RANGES = "after_optimizations-live-range.txt"
CODE = "after_codegen.txt"

_POLL = 0.05
_CHILD = (
    "import sys; from pathlib import Path; from torchtpu import _C\n"
    "_C.compile_ahead(Path(sys.argv[1]).read_text(), sys.argv[2])"
)


class CompilerError(RuntimeError):
    """Why the compiler has not answered."""


class Dumps(NamedTuple):
    """What the compiler wrote down: texts."""

    schedule: str
    assignment: str
    live_ranges: str
    code: str
    """With cycles; empty if only the first part of the compile was asked for."""
    out_of_memory: str
    """Its words where the program does not fit, else empty."""


def locate(program: Program) -> str:
    """The program's text, with the number of each call in `@main` as the name of what it becomes: "call.17".

    The compiler gives the name to all instructions that come of the call. This text is never cached.
    """
    lines, number = program.text.split("\n"), 0
    for index, line in enumerate(lines):
        if "func.call @" in line and line.startswith(("%o", "func.call")):
            lines[index] = f'{line} loc("call.{number}"("program":{number + 1}:1))'
            number += 1
        elif line.startswith("func.func private"):
            break
    return "\n".join(lines)


def compile(program: Program, topology: str, folder: Path, deep: bool, seconds: float) -> Dumps:
    """Compiles a program for a topology, with files in a folder, for at most so many seconds.

    CompilerError where libtpu is not installed, refuses the program for another reason than memory, dies, or is late.
    """
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "program.mlir"
    source.write_text(locate(program))
    flags = f"--xla_dump_to={folder} --xla_dump_hlo_as_text --xla_dump_hlo_module_re=torchtpu.*"
    environment = {name: value for name, value in os.environ.items() if name not in (DRY, "TORCHTPU_PLATFORM")}
    environment |= {"XLA_FLAGS": flags, "TPU_STDERR_LOG_LEVEL": "3", "TF_CPP_MIN_LOG_LEVEL": "3"}
    started = time.monotonic()
    with (folder / "messages.txt").open("w+") as messages:
        child = subprocess.Popen(
            [sys.executable, "-c", _CHILD, str(source), topology],
            env=environment,
            stdout=messages,
            stderr=subprocess.STDOUT,
        )
        try:
            while child.poll() is None and time.monotonic() - started < seconds:
                if not deep and _is_whole(_find(folder, SCHEDULED)):
                    break
                time.sleep(_POLL)
            late = child.poll() is None and time.monotonic() - started >= seconds
        finally:
            if child.poll() is None:
                child.kill()
            child.wait()
        messages.seek(0)
        said = messages.read()
    schedule = _read(folder, SCHEDULED)
    refusal = re.search(r"(RESOURCE_EXHAUSTED|Ran out of memory)[^\n]*", said)
    if not schedule and not _read(folder, ASSIGNMENT):
        raise CompilerError(_why(said, late, seconds, child.returncode))
    return Dumps(
        schedule or _read(folder, "after_optimizations.txt"),
        _read(folder, ASSIGNMENT),
        _read(folder, LIVE_RANGES),
        _read(folder, CODE),
        refusal[0] if refusal else "",
    )


def _why(said: str, late: bool, seconds: float, status: int) -> str:
    if "No module named" in said or ("libtpu" in said and "not installed" in said):
        return "libtpu is not installed: `pip install libtpu` brings the compiler, which needs no TPU"
    if late:
        return f"the compiler did not answer within {seconds:.0f} s; --time-limit gives it more"
    last = [line for line in said.strip().splitlines() if line.strip()]
    if status < 0:
        return f"the compiler died of signal {-status}" + (f": {last[-1]}" if last else "")
    return last[-1] if last else "the compiler wrote nothing down"


def _find(folder: Path, ending: str) -> Path | None:
    return next(iter(folder.glob(f"*{ending}")), None)


def _is_whole(path: Path | None) -> bool:
    """Whether a dump is written to its end: the entry computation comes last."""
    if path is None:
        return False
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 8))
        return file.read().rstrip().endswith(b"}")


def _read(folder: Path, ending: str) -> str:
    path = _find(folder, ending)
    return path.read_text(errors="replace") if path else ""
