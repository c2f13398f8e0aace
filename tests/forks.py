"""Processes that have not used the device, without the seconds that imports take: forks of a process that has imported
torch with Dynamo and done nothing else.

Tests of imports, or of the interpreter's end, need a process started by the operating system: see
`helpers.start_python`.
"""

from __future__ import annotations

import atexit
import builtins
import contextlib
import faulthandler
import functools
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import types
from pathlib import Path
from typing import Any, NoReturn

from tests.settings import skip_guard_timing

SECONDS = 240.0
# A fork and its own forks print the stacks of their threads at this signal.
STACKS = signal.SIGUSR2
# With torch. An optimizer imports the first, a compiled function the others; together they take about 3 seconds.
IMPORTED = ("torch._dynamo", "functorch.compile", "networkx")


class Server:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from tests.forks import serve; serve()"],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(self.process.kill)

    def run(self, arguments: list[str], environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
        """Like subprocess.run with `python` before the arguments, which begin with -c or -m."""
        with tempfile.TemporaryDirectory() as folder:
            files = [os.path.join(folder, name) for name in ("stdout", "stderr")]
            request = {"arguments": arguments, "environment": environment, "cwd": os.getcwd(), "files": files}
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
            child = self._answer(SECONDS)
            try:
                status = self._answer(SECONDS)
            except TimeoutError:
                for process in _group(child):
                    os.kill(process, STACKS)
                    time.sleep(0.5)  # the stacks of one process after the other
                os.killpg(child, signal.SIGKILL)
                self._answer(SECONDS)
                raise AssertionError(f"{arguments} did not end in {SECONDS:.0f} s:\n{_text(files[1])}") from None
            texts = [_text(file) for file in files]
        return subprocess.CompletedProcess(arguments, status, *texts)

    def _answer(self, seconds: float) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            if not selector.select(seconds):
                raise TimeoutError
        return int(self.process.stdout.readline())


def _group(leader: int) -> list[int]:
    """The processes of a group."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(int(folder.name)) == leader:
                found.append(int(folder.name))
    return found


def _text(file: str) -> str:
    return Path(file).read_text(errors="replace")


@functools.cache
def server() -> Server:
    return Server()


def serve() -> None:
    """The process that is forked."""
    # Unbuffered: a line is complete when `select` reports it.
    answers = os.dup(1)
    os.dup2(2, 1)
    skip_guard_timing()
    faulthandler.register(STACKS, file=2)
    for name in IMPORTED:
        importlib.import_module(name)

    freeze()
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            os.close(answers)
            _end(_become(request))
        os.write(answers, f"{child}\n".encode())
        _, status = os.waitpid(child, 0)
        os.write(answers, f"{os.waitstatus_to_exitcode(status)}\n".encode())


def freeze() -> None:
    """What exists now stays out of garbage collection, which would make a fork copy its pages."""
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any]) -> int:
    """Runs the program of a request; its exit status."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for descriptor, file in enumerate(request["files"], 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    kind, what, *rest = request["arguments"]
    sys.argv = [kind, *rest]
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        if kind == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            main.__dict__["__builtins__"] = builtins
            exec(compile(what, "<string>", "exec"), main.__dict__)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _end(status: int) -> NoReturn:
    """Ends a fork as Python ends a program, except that it destroys no module but `__main__`. To destroy all takes 0.3
    seconds of processor time, because a fork copies each page that it writes to."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
