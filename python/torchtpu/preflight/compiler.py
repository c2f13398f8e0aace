"""Asks libtpu's compiler about programs, in processes of its own, and keeps what it writes down on the way.

The compiler first optimizes, schedules and assigns memory, which takes seconds, and then generates code, which takes
minutes. What it writes down after the first phase says what fits and where memory goes. The rest adds the compiler's
estimate of the cycles of each fusion. libtpu runs the first phase alone where it has PJRT's extension for that. Else
the whole compile begins, and its process is ended when the files of the first phase are there.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import subprocess
import sys
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from torchtpu.kernels.check import too_much_vmem
from torchtpu.kernels.fingerprint import hash_of, version_of
from torchtpu.preflight.recording import DRY, Program
from torchtpu.stored import Stored

# Files of the compiler. It writes `CODE` when it has generated code, and the others when it has assigned memory:
# `SCHEDULED` is the last of those.
SCHEDULED = "after_optimizations_after_buffer_assignment.txt"
ASSIGNMENT = "after_optimizations-buffer-assignment.txt"
LIVE_RANGES = "after_optimizations-live-range.txt"
CODE = "after_codegen.txt"

_POLL = 0.05
_OUT_OF_MEMORY = re.compile(r"(RESOURCE_EXHAUSTED|Ran out of memory)[^\n]*")
# A kernel may ask for too much of the chip's fast memory, which is no question of what fits the device.
_OTHER_MEMORY = re.compile(r"memory space (?!hbm)\w")
_CALL = re.compile(r'op_name="(?:[^"]*/)?call\.(\d+)')
_REFUSES = "the compiler refuses the program: "
_NOT_INHERITED = (DRY, "TORCHTPU_PLATFORM", "XLA_FLAGS")
# Answers a request, [program, topology, folder, whole], with an error or an empty text. What libtpu writes to stdout
# goes to stderr. A phase that cannot run alone is no error: its files are missing.
_CHILD = """
import json, os, sys
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
from torchtpu import _C
for request in sys.stdin:
    program, topology, folder, whole = json.loads(request)
    error = ""
    try:
        with open(program) as file:
            _C.examine_ahead(file.read(), topology, folder, whole)
    except Exception as raised:
        error = str(raised) or "the compiler gave no reason"
    print(json.dumps(error), file=answers, flush=True)
"""


# The compiler's answers. A script that changes in one place is judged again in seconds.
DUMPS = Stored(".preflight", 256 * 2**20)


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
    problem: str = ""
    """Why it ended early, for another reason than memory; else empty."""


def _key(text: str, topology: str, whole: bool) -> str:
    """The key of what the compiler says of a program."""
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    return hash_of(text, topology, whole, version_of("libtpu"), flags, Dumps._fields)


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


class Compilers:
    """Processes that compile one program after the other. There are as many as threads that ask at once; they end with
    the block."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._idle: list[_Process] = []

    def __enter__(self) -> Compilers:
        return self

    def __exit__(self, *_: object) -> None:
        while self._idle:
            self._idle.pop().end()

    def start(self) -> None:
        """Starts a process, which loads its libraries until the first program comes."""
        self._idle.append(_Process())

    def compile(self, program: Program, topology: str, folder: Path, deep: bool) -> Dumps:
        """Compiles a program for a topology, with files in a folder, for at most the seconds of the time limit.

        CompilerError where libtpu is not installed, refuses the program for another reason than memory, dies, or is
        late; where it had assigned memory before that, the files say so much, and the reason is their `problem`.
        """
        folder.mkdir(parents=True, exist_ok=True)
        text = locate(program)
        keys = [_key(text, topology, whole) for whole in ((True,) if deep else (True, False))]
        for key in keys:
            # The answer of a whole compile serves both: it has cycles, too.
            if known := DUMPS.read(key):
                return Dumps(*json.loads(zlib.decompress(known)))
        source = folder / "program.mlir"
        source.write_text(text)
        deadline = time.monotonic() + self._seconds
        problem = ""
        for whole in (True,) if deep else (False, True):
            # Without the first phase alone, the whole compile is ended when that phase is over.
            until = folder if whole and not deep else None
            problem = self._ask([str(source), topology, str(folder), whole], deadline, until)
            problem = _shorten(problem, program)
            if _find(folder, ASSIGNMENT):
                break
        schedule, assignment = _read(folder, SCHEDULED), _read(folder, ASSIGNMENT)
        if not schedule and not assignment:
            raise CompilerError(problem or "the compiler wrote nothing down")
        out_of_memory = _out_of_memory(problem)
        dumps = Dumps(
            schedule or _read(folder, "after_optimizations.txt"),
            assignment,
            _read(folder, LIVE_RANGES),
            _read(folder, CODE),
            out_of_memory,
            "" if out_of_memory else problem,
        )
        if not dumps.problem:
            DUMPS.write(keys[-1], zlib.compress(json.dumps(dumps).encode()))
        return dumps

    def _ask(self, request: list[Any], deadline: float, until: Path | None) -> str:
        try:
            process = self._idle.pop()
        except IndexError:
            process = _Process()
        try:
            problem = process.ask(request, deadline, until)
        except BaseException:
            process.end()
            raise
        if process.is_alive:
            self._idle.append(process)
        if time.monotonic() >= deadline:
            return f"the compiler did not answer within {self._seconds:.0f} s; --time-limit gives it more"
        return problem


class _Process:
    def __init__(self) -> None:
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
        environment |= {"TPU_STDERR_LOG_LEVEL": "3", "TF_CPP_MIN_LOG_LEVEL": "3"}
        self._messages = os.memfd_create("messages")
        self._child = subprocess.Popen(
            [sys.executable, "-c", _CHILD],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
        )

    @property
    def is_alive(self) -> bool:
        return self._child.poll() is None

    def ask(self, request: list[Any], deadline: float, until: Path | None) -> str:
        """Returns the compiler's refusal, or why there is no answer; empty if it has done what it was asked for.
        The process ends at the deadline, and when the first phase has written its files `until` a folder."""
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            print(json.dumps(request), file=self._child.stdin, flush=True)
        while time.monotonic() < deadline:
            if select.select([self._child.stdout], [], [], _POLL)[0]:
                answer = self._child.stdout.readline()
                if not answer:
                    return self._death()
                error = json.loads(answer)
                return f"{_REFUSES}{error}" if error else ""
            if until is not None and _is_whole(_find(until, SCHEDULED)):
                break
        self.end()
        return ""

    def _death(self) -> str:
        status = self._child.wait()
        text = os.pread(self._messages, os.fstat(self._messages).st_size, 0).decode(errors="replace")
        said = [line for line in text.splitlines() if line.strip()]
        last = said[-1] if said else "it said nothing"
        return f"the compiler died of signal {-status}: {last}" if status < 0 else last

    def end(self) -> None:
        self._child.kill()
        self._child.communicate()
        os.close(self._messages)


def _shorten(problem: str, program: Program) -> str:
    """A refusal for another reason than memory as one sentence, with the operator that it names."""
    if not problem.startswith(_REFUSES):
        return problem
    error = problem.removeprefix(_REFUSES).strip()
    if "libtpu" in error and "not installed" in error:
        return "libtpu is not installed: `pip install libtpu` brings the compiler, which needs no TPU"
    if _out_of_memory(error):
        return error
    # The lines after the first are a trace of the compiler or the program's text.
    asked = too_much_vmem(error)
    reason = f"a kernel {asked}" if asked else error.splitlines()[0]
    named = _CALL.search(error)
    if named and int(named[1]) < len(program.calls):
        operator, line, _ = program.calls[int(named[1])]
        reason = f"{operator} ({line}): {reason}" if line else f"{operator}: {reason}"
    return f"{_REFUSES}{reason}"


def _out_of_memory(problem: str) -> str:
    """The compiler's words where a program does not fit the device; else empty."""
    found = None if _OTHER_MEMORY.search(problem) else _OUT_OF_MEMORY.search(problem)
    return found[0] if found else ""


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
