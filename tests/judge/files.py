"""Runs a file of tests in child processes, and survives a crash or a hang of one of its tests."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import selectors
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.progress import Progress

# A child imports torch and a file that may make 50,000 tests, and the machine may be busy.
START_SECONDS = 1200.0
MOST_CHILDREN = 100
"""After so many crashes and hangs the rest of a file is not run."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What came of a test."""

    name: str
    outcome: str
    """"passed", "failed", "skipped", "crash", "hang", or "missing": the file has no such test on this device."""
    message: str = ""
    seconds: float = 0.0

    @property
    def is_bad(self) -> bool:
        return self.outcome in ("failed", "crash", "hang")


@dataclasses.dataclass(frozen=True)
class Request:
    """Which tests of a file to run."""

    file: Path
    tests: str = ""
    """A regular expression that the names contain."""
    only: tuple[str, ...] | None = None
    sample: int | None = None
    seed: int = 0
    plugins: tuple[str, ...] = ()


def run_file(request: Request, environment: dict[str, str], seconds: float) -> dict[str, Outcome]:
    """What came of each test of a file. `seconds` is what a test may take."""
    done: dict[str, Outcome] = {}
    progress: Progress | None = None

    def record(outcome: Outcome) -> None:
        done[outcome.name] = outcome
        if progress is not None:
            progress.step(f"{request.file.name}::{outcome.name}", is_failure=outcome.is_bad)

    for _ in range(MOST_CHILDREN):
        running, problem, names = "", "", None
        with _child(request, list(done), environment) as child:
            for message in child.messages(seconds):
                if message["event"] == "collected":
                    names = set(message["names"])
                    progress = progress or Progress(len(names))
                elif message["event"] == "start":
                    running = message["name"]
                elif message["event"] == "end":
                    running = ""
                    record(Outcome(message["name"], message["outcome"], message["message"], message["seconds"]))
                elif message["event"] == "broken":
                    problem = message["message"]
                elif message["event"] == "finish" and not message["stopped"]:
                    child.is_finished = True
            if child.is_finished and not problem:
                break
            if problem or names is None:
                why = problem or child.last_words()
                return {**done, "": Outcome("", "failed", f"the file cannot be run: {why}")}
            if running:
                bad = "hang" if child.is_late else "crash"
                why = f"no end after {seconds:.0f} s" if child.is_late else child.last_words()
                record(Outcome(running, bad, why, seconds if child.is_late else 0.0))
            elif names <= set(done):
                break
    for name in request.only or ():
        done.setdefault(name, Outcome(name, "missing"))
    return done


class _Child:
    """A process that runs tests, and the messages that it writes."""

    def __init__(self, process: subprocess.Popen[bytes], errors: Any) -> None:
        self.process = process
        self.errors = errors
        self.is_finished = False
        self.is_late = False

    def messages(self, seconds: float) -> Iterator[dict[str, Any]]:
        """The messages up to the end of the process, or up to the first that takes too long."""
        assert self.process.stdout is not None
        # The first message of a test must arrive in time; between tests files are imported.
        limit, rest = START_SECONDS, b""
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while True:
                if not selector.select(limit):
                    self.is_late = True
                    return
                more = os.read(self.process.stdout.fileno(), 1 << 16)
                if not more:
                    return
                *lines, rest = (rest + more).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    limit = seconds if message["event"] == "start" else START_SECONDS
                    yield message

    def last_words(self) -> str:
        """The exit status, and the end of what the process has printed."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 1500))
        return f"exit status {self.process.poll()}: {self.errors.read().decode(errors='replace').strip()}"


@contextlib.contextmanager
def _child(request: Request, done: list[str], environment: dict[str, str]) -> Iterator[_Child]:
    with tempfile.TemporaryDirectory() as place, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.judge.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=place,
        )
        try:
            assert process.stdin is not None
            asked = {**dataclasses.asdict(request), "file": str(request.file), "done": done}
            with contextlib.suppress(BrokenPipeError):
                process.stdin.write(json.dumps(asked).encode() + b"\n")
                process.stdin.close()
            yield _Child(process, errors)
        finally:
            process.kill()
            # The tests start processes of their own, which are of the child's group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            assert process.stdout is not None
            process.stdout.close()
