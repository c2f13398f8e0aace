"""Processes that run cases, and survive a crash or a hang of one of them."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import selectors
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from tests.conformance.cases import Case
from tests.conformance.judge import Verdict
from tests.settings import with_quick_compiles, without_quick_compiles

# Before its first case a worker imports torch and PyTorch's lists, which takes seconds, and longer on a busy machine.
START_SECONDS = 300.0
# A worker that has compiled this many programs is replaced: they stay in memory, and the system limits the number of
# mappings of a process.
MOST_PROGRAMS = 6000


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of a worker, for all cases."""

    inputs: int
    seed: int
    is_optimized: bool = True
    """Whether programs are compiled with the optimizations that users have."""

    def environment(self) -> dict[str, str]:
        # One thread for each operator's loops: the workers run in parallel.
        environment = {**without_quick_compiles(os.environ), "OMP_NUM_THREADS": "1"}
        if not self.is_optimized:
            environment["XLA_FLAGS"] = with_quick_compiles(environment["XLA_FLAGS"])
            # In Fused, programs of several operators are to be tested.
            environment["TORCHTPU_COMPILE"] = "wait"
        return environment


def run_all(cases: Iterable[Case], workers: int, timeout: float, settings: Settings) -> Iterator[Verdict]:
    """The verdicts as they arrive. A worker gets all cases of a subject in turn, because they share programs."""
    subjects = deque(list(group) for _, group in itertools.groupby(cases, key=lambda case: case.subject))
    verdicts: queue.Queue[Verdict | None] = queue.Queue()
    threads = [
        threading.Thread(target=_serve, args=(subjects, verdicts, timeout, settings), daemon=True)
        for _ in range(min(workers, len(subjects)))
    ]
    for thread in threads:
        thread.start()
    running = len(threads)
    while running:
        verdict = verdicts.get()
        if verdict is None:
            running -= 1
        else:
            yield verdict


def _serve(subjects: deque[list[Case]], verdicts: queue.Queue[Any], timeout: float, settings: Settings) -> None:
    """One thread keeps one worker busy until no subject is left."""
    worker = None
    try:
        while True:
            try:
                cases = subjects.popleft()
            except IndexError:
                return
            for case in cases:
                worker = worker or _Worker(settings)
                verdict, is_alive = worker.run(case, timeout)
                verdicts.put(verdict)
                if not is_alive:
                    worker.stop()
                    worker = None
    finally:
        if worker:
            worker.stop()
        verdicts.put(None)


class _Worker:
    def __init__(self, settings: Settings) -> None:
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 (closed in stop)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.conformance.workers", str(settings.inputs), str(settings.seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            env=settings.environment(),
        )
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.process.stdout, selectors.EVENT_READ)
        self.started = self._answer(START_SECONDS)

    def run(self, case: Case, timeout: float) -> tuple[Verdict, bool]:
        """The verdict, and whether the worker can run another case."""
        if self.started is None:
            return Verdict(str(case), "crash", failed=1, why=f"the worker does not start: {self._last_words()}"), False
        start = time.monotonic()
        try:
            self.process.stdin.write(f"{case}\n".encode())
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        answer = self._answer(timeout)
        seconds = round(time.monotonic() - start, 3)
        if answer is not None:
            return Verdict(**answer["verdict"]), answer["programs"] < MOST_PROGRAMS
        if seconds >= timeout:
            why = f"no end after {timeout:.0f} seconds"
            return Verdict(str(case), "hang", failed=1, why=why, seconds=seconds), False
        return Verdict(str(case), "crash", failed=1, why=self._last_words(), seconds=seconds), False

    def _answer(self, timeout: float) -> dict[str, Any] | None:
        """The next line of the worker; None if it dies or takes too long."""
        if not self.selector.select(timeout):
            return None
        line = self.process.stdout.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def _last_words(self) -> str:
        status = self.process.poll() if self.process.poll() is not None else self.process.wait(60)
        self.errors.seek(0, os.SEEK_END)
        self.errors.seek(max(0, self.errors.tell() - 600))
        return f"exit status {status}: {self.errors.read().decode(errors='replace').strip()}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()
        self.selector.close()
        self.process.stdin.close()
        self.process.stdout.close()
        self.errors.close()


def main() -> None:
    """The worker: reads names of cases, writes verdicts. All other output goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    import torch

    from tests.conformance.cases import subjects
    from tests.conformance.judge import run

    def answer(value: Any) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    inputs, seed = (int(argument) for argument in sys.argv[1:])
    answer({"subjects": len(subjects())})
    for line in sys.stdin:
        verdict = run(Case.parse(line.strip()), inputs, seed)
        answer({"verdict": dataclasses.asdict(verdict), "programs": torch.tpu.cache_stats()["compiles"]})


if __name__ == "__main__":
    main()
