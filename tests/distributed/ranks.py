"""Several ranks on this machine, as forks of one process that has imported what they need: no rank takes the seconds
of an import.

    python -m tests.distributed.ranks 4 tests.distributed.dying trial 17

calls `trial(17)` of that module on each of four ranks, and prints as JSON how each ended.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import socket
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

from tests.forks import freeze, server

SECONDS = 220.0


class Outcome(NamedTuple):
    """How a rank ended: its exit status, negative for a signal, and none where it had to be ended because it hung."""

    status: int | None
    value: Any
    error: str | None


def on_ranks(ranks: int, module: str, function: str, *arguments: Any, **environment: str) -> list[Outcome]:
    """Calls a function with arguments that JSON holds on so many ranks; the outcome of each."""
    command = ["-m", "tests.distributed.ranks", str(ranks), module, function, *map(json.dumps, arguments)]
    finished = server().run(command, {**os.environ, "OMP_NUM_THREADS": "1", **environment})
    assert finished.returncode == 0, finished.stderr
    return [Outcome(*each) for each in json.loads(finished.stdout.splitlines()[-1])]


def values_on_ranks(ranks: int, module: str, function: str, *arguments: Any, **environment: str) -> list[Any]:
    """What a function returns on each rank; all must return."""
    outcomes = on_ranks(ranks, module, function, *arguments, **environment)
    failed = {rank: outcome for rank, outcome in enumerate(outcomes) if outcome.status != 0 or outcome.error}
    assert not failed, "\n".join(f"rank {rank}: {each.status} {each.error}" for rank, each in failed.items())
    return [outcome.value for outcome in outcomes]


def check_cases(module: str, mode: str, ranks: int = 2, *names: str, **environment: str) -> None:
    """Runs the cases of a module of this folder, or those of these names; all must pass on all ranks."""
    returned = values_on_ranks(ranks, f"tests.distributed.{module}", "run", mode, *names, **environment)
    for rank, outcomes in enumerate(returned):
        failed = {name: text for name, text in outcomes.items() if text is not None}
        assert not failed, f"rank {rank}\n" + "\n".join(f"{name}: {text}" for name, text in failed.items())
        assert outcomes


def main(ranks: str, module: str, function: str, *arguments: str) -> None:
    call = getattr(importlib.import_module(module), function)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    os.environ.update(WORLD_SIZE=ranks, LOCAL_WORLD_SIZE=ranks, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    folder = Path(tempfile.mkdtemp(prefix="torchtpu-ranks-"))
    freeze()
    children: list[int] = []
    for rank in range(int(ranks)):
        child = os.fork()
        if child == 0:
            os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
            _be_a_rank(call, [json.loads(each) for each in arguments], folder / str(rank))
            return
        children.append(child)
    outcomes = []
    deadline = time.monotonic() + SECONDS
    for rank, child in enumerate(children):
        status = _wait(child, deadline)
        file = folder / str(rank)
        value, error = json.loads(file.read_text()) if file.exists() else (None, None)
        outcomes.append((status, value, error))
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    print("", json.dumps(outcomes), sep="\n")


def _be_a_rank(call: Any, arguments: list[Any], file: Path) -> None:
    value = error = None
    try:
        value = call(*arguments)
    except Exception:
        error = traceback.format_exc()
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps((value, error)))
    partial.rename(file)


def _wait(child: int, deadline: float) -> int | None:
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


if __name__ == "__main__":
    main(*sys.argv[1:])
