"""What passes on the CPU compared with "tpu", as text and as a page."""

from __future__ import annotations

import dataclasses
import html
import re
import sys
from collections import Counter
from fnmatch import fnmatchcase
from pathlib import Path

from tests.judge.files import Outcome

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

KNOWN = Path(__file__).with_name("known.toml")
SLOW_SECONDS = 5.0


def known_differences(mode: str) -> dict[str, str]:
    """The reason for each pattern of tests that fail in a mode: "test_torch.py::TestTorchDeviceTypeCPU::test_*". A
    difference without `modes` is one of all modes."""
    groups = tomllib.loads(KNOWN.read_text()).get("difference", [])
    return {
        pattern: each["reason"] for each in groups if mode in each.get("modes", [mode]) for pattern in each["tests"]
    }


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What came of a file on both devices."""

    file: str
    cpu: dict[str, Outcome]
    tpu: dict[str, Outcome]

    @property
    def expected(self) -> list[Outcome]:
        """The outcomes on "tpu" of what passes on the CPU. If the file cannot be run, all of them have failed."""
        broken = self.tpu.get("")
        return [
            self.tpu.get(name) or Outcome(name, "failed", broken.message if broken else "not run")
            for name, outcome in self.cpu.items()
            if outcome.outcome == "passed"
        ]

    @property
    def bad(self) -> list[Outcome]:
        return [outcome for outcome in self.expected if outcome.is_bad]

    @property
    def counts(self) -> Counter[str]:
        counts = Counter(outcome.outcome for outcome in self.expected)
        counts["slow"] = sum(outcome.seconds > SLOW_SECONDS for outcome in self.expected)
        return counts


class Report:
    """The comparisons of a run."""

    def __init__(self, mode: str, known: dict[str, str], is_whole: bool) -> None:
        self.mode = mode
        self.known = known
        self.is_whole = is_whole
        self.comparisons: dict[str, Comparison] = {}

    def add(self, comparison: Comparison) -> None:
        self.comparisons[comparison.file] = comparison

    def reason(self, file: str, name: str) -> str:
        """Why a test fails; "" if the list does not know."""
        full = f"{file}::{name}"
        return next((reason for pattern, reason in self.known.items() if fnmatchcase(full, pattern)), "")

    def unexplained(self, comparison: Comparison) -> list[Outcome]:
        return [outcome for outcome in comparison.bad if not self.reason(comparison.file, outcome.name)]

    @property
    def stale(self) -> list[str]:
        """Patterns whose tests were run and do not fail."""
        if not self.is_whole:
            return []
        failed = [f"{each.file}::{outcome.name}" for each in self.comparisons.values() for outcome in each.bad]
        return [
            pattern
            for pattern in self.known
            if any(fnmatchcase(file, pattern.partition("::")[0]) for file in self.comparisons)
            and not any(fnmatchcase(name, pattern) for name in failed)
        ]

    @property
    def unreadable(self) -> list[str]:
        """Files that even the CPU cannot run with the installed torch."""
        return [each.file for each in self.comparisons.values() if "" in each.cpu]

    @property
    def is_good(self) -> bool:
        return not self.stale and not any(map(self.unexplained, self.comparisons.values()))

    def text_of(self, comparison: Comparison, verbose: bool) -> str:
        lines = [f"{comparison.file}: {_counted(comparison.counts)}"]
        for outcome in self.unexplained(comparison):
            message = outcome.message if verbose else first_line(outcome.message)
            lines.append(f"  {outcome.outcome} {outcome.name}: {message}")
        return "\n".join(lines)

    def summary(self) -> str:
        total = sum((each.counts for each in self.comparisons.values()), Counter())
        lines = [f"{self.mode}: {_counted(total)}"]
        lines += [f"the CPU cannot run {file} with this torch" for file in self.unreadable]
        lines += [f"listed as different, but passes: {pattern}" for pattern in self.stale]
        unexplained = [outcome for each in self.comparisons.values() for outcome in self.unexplained(each)]
        return "\n".join([*lines, f"{len(unexplained)} failures that are not listed"])

    def page(self, order: list[str]) -> str:
        """The results as HTML: a line for each file, then the failures, alike ones together."""
        rows, bad = "", []
        for comparison in (self.comparisons[file] for file in order):
            counts = comparison.counts
            cells = "".join(f"<td>{counts[kind] or ''}" for kind in (*KINDS, "slow"))
            rows += f"<tr><th>{html.escape(comparison.file)}<td>{_share(counts)}{cells}\n"
            bad += [(alike(outcome.message), comparison.file, outcome) for outcome in comparison.bad]
        groups = Counter(key for key, _, _ in bad)
        failures = "".join(
            f"<h3>{number} × {html.escape(key)}</h3>"
            + "".join(self._failure(file, outcome) for each, file, outcome in bad if each == key)
            for key, number in groups.most_common()
        )
        head = "".join(f"<th>{kind}" for kind in ("file", "share", *KINDS, f"over {SLOW_SECONDS:.0f} s"))
        return (
            f"<!doctype html><meta charset=utf-8><title>PyTorch's tests on tpu</title><style>{STYLE}</style>"
            f"<h1>PyTorch's tests on tpu, {self.mode}</h1><p>Tests that pass on the CPU. Those that PyTorch's harness "
            "leaves out on other devices are skipped or missing, and have no part in the share.</p>"
            f"<pre>{html.escape(self.summary())}</pre><table><tr>{head}{rows}</table><h2>Failures</h2>{failures}\n"
        )

    def _failure(self, file: str, outcome: Outcome) -> str:
        reason = self.reason(file, outcome.name)
        return (
            f"<details><summary>{html.escape(f'{file}::{outcome.name}')} {html.escape(reason)}</summary>"
            f"<pre>{html.escape(outcome.message)}</pre></details>\n"
        )


KINDS = ("passed", "failed", "crash", "hang", "skipped", "missing")
STYLE = """
body { font: 14px system-ui, sans-serif; margin: 2em } th { text-align: left; font-weight: 500; padding-right: 1em }
td { text-align: right; padding: 0 .6em } pre { white-space: pre-wrap; margin-left: 1.5em }
"""


def _share(counts: Counter[str]) -> str:
    judged = sum(counts[kind] for kind in ("passed", "failed", "crash", "hang"))
    return f"{100 * counts['passed'] / judged:.2f} %" if judged else "none"


def _counted(counts: Counter[str]) -> str:
    return f"{_share(counts)}  " + "  ".join(
        f"{counts[kind]} {kind}" for kind in (*KINDS, "slow") if counts[kind] or kind == "passed"
    )


def first_line(message: str) -> str:
    return message.strip().splitlines()[0][:300] if message.strip() else "no message"


def alike(message: str) -> str:
    """The first line without numbers and names of dtypes, so that failures of a kind have the same text."""
    line = re.sub(r"torch\.(u?int|float|bfloat|complex)\d+\w*|torch\.bool", "DTYPE", first_line(message))
    return re.sub(r"-?\d+(\.\d+)?(e[-+]?\d+)?", "N", line)
