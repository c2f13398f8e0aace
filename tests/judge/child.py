"""The child: runs the tests of a file under pytest, and writes a line of JSON for each that starts and ends."""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
import time
import zlib
from collections.abc import Iterator
from typing import Any

import pytest

# A child that has compiled this many programs is replaced: they stay in memory, and the system limits the number of
# mappings of a process.
MOST_PROGRAMS = 6000
MESSAGE = 4000
"""The most characters that are kept of a failure."""
# The names of classes and tests have the device: TestIndexingPRIVATEUSE1::test_index_privateuse1_float32.
DEVICE_IN_CLASS = re.compile(r"(PRIVATEUSE1|TPU)(?=::|$)")
DEVICE_IN_TEST = re.compile(r"_(privateuse1|tpu)(?=_|$|\[)")


def on_cpu(name: str) -> str:
    """The name that a test of "tpu" has on the CPU."""
    return DEVICE_IN_TEST.sub("_cpu", DEVICE_IN_CLASS.sub("CPU", name))


def drawn(names: list[str], number: int, seed: int) -> set[str]:
    """So many of the names, the same on each machine."""
    return set(sorted(names, key=lambda name: zlib.crc32(f"{seed} {name}".encode()))[:number])


class Journal:
    """A plugin of pytest: chooses what is run, and tells what comes of it."""

    def __init__(self, request: dict[str, Any], answers: Any) -> None:
        self.request = request
        self.answers = answers
        self.worst: dict[str, Any] = {}
        self.start = 0.0

    def tell(self, **message: Any) -> None:
        self.answers.write(json.dumps(message) + "\n")
        self.answers.flush()

    @staticmethod
    def _name(nodeid: str) -> str:
        return on_cpu(nodeid.partition("::")[2])

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        names = [self._name(item.nodeid) for item in items]
        chosen = {name for name in names if re.search(self.request["tests"], name)}
        if self.request["only"] is not None:
            chosen &= set(self.request["only"])
        elif self.request["sample"] is not None:
            chosen = drawn(sorted(chosen), self.request["sample"], self.request["seed"])
        chosen -= set(self.request["done"])
        self.tell(event="collected", number=len(items), names=sorted(chosen))
        items[:] = [item for item, name in zip(items, names, strict=True) if name in chosen]

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.tell(event="broken", message=str(report.longrepr)[-MESSAGE:])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        name = self._name(item.nodeid)
        self.worst = {"outcome": "passed", "message": ""}
        self.tell(event="start", name=name)
        start = time.monotonic()
        try:
            return (yield)
        finally:
            _settle()
            self.tell(event="end", name=name, seconds=round(time.monotonic() - start, 3), **self.worst)
            if _programs() > MOST_PROGRAMS:
                item.session.shouldstop = "many programs"

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed and self.worst["outcome"] != "failed":
            self.worst = {"outcome": "failed", "message": _message(report)}
        elif report.skipped and self.worst["outcome"] == "passed":
            self.worst = {"outcome": "skipped", "message": str(report.longrepr)[-200:]}

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        self.tell(event="finish", stopped=bool(session.shouldstop))


def _message(report: Any) -> str:
    """What was raised first, then the report."""
    text = str(report.longrepr)
    chain = getattr(report.longrepr, "chain", None)
    crash = chain[0][1] if chain else getattr(report.longrepr, "reprcrash", None)
    return f"{crash.message if crash else text.strip().splitlines()[-1]}\n\n{text}"[:MESSAGE]


def _device() -> Any:
    """`torch.tpu`; None on the CPU."""
    return getattr(sys.modules.get("torch"), "tpu", None)


def _programs() -> int:
    device = _device()
    return device.cache_stats()["compiles"] if device is not None else 0


def _settle() -> None:
    """Ends what a test has left: an error that nobody has read would be raised in the next test."""
    device = _device()
    if device is not None and device.is_initialized():
        with contextlib.suppress(Exception):
            device.synchronize()


def main() -> None:
    # A group, not a session: Linux would schedule a new session without the nice value of this one.
    os.setpgrp()
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    request = json.loads(sys.stdin.readline())
    # PyTorch's harness and some of its tests look at the command line.
    sys.argv = [request["file"]]
    sys.exit(
        pytest.main(
            ["-q", "--noconftest", "-p", "no:cacheprovider", "-p", "no:xdist", "-o", "addopts=", "-W", "ignore"]
            + ["--rootdir", os.path.dirname(request["file"]), request["file"]]
            + [part for plugin in request["plugins"] for part in ("-p", plugin)],
            plugins=[Journal(request, answers)],
        )
    )


if __name__ == "__main__":
    main()
