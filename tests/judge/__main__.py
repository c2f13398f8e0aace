"""Runs PyTorch's test files on "tpu" and on the CPU, and compares. `make judge` runs all of them."""

from __future__ import annotations

import argparse
import fnmatch
import json
import sys
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict
from pathlib import Path

import torch

from tests.judge.files import Outcome, Request, run_file
from tests.judge.report import Comparison, Report, known_differences
from tests.judge.source import pytorch_tests
from tests.judge.suites import SUITES, Suite
from tests.settings import MODES

FOLDER = Path("build/judge")


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judge",
        description="Runs PyTorch's own test files on 'tpu' and on the CPU. Only what passes on the CPU counts. "
        "Results of the CPU are kept. Writes index.html.",
        epilog="Fails if a test fails that known.toml does not list or, where whole files are run, if all tests of an "
        "entry pass.",
    )
    parser.add_argument("--suite", choices=SUITES, default="device", help="which list of files (device)")
    parser.add_argument(
        "--files",
        default="*",
        metavar="PATTERNS",
        help="only these: 'test_torch.py,nn/*', or a file that is not in the list",
    )
    parser.add_argument("--tests", default="", metavar="REGEX", help="only tests whose names contain this")
    parser.add_argument("--mode", choices=MODES, default="strict", help="the eager mode (strict)")
    parser.add_argument("--sample", type=int, metavar="N", help="at most N tests of each file, drawn by --seed")
    parser.add_argument("--seed", type=int, default=0, help="for the draw (0)")
    parser.add_argument("--failed", action="store_true", help="only what failed last time")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="files at a time (2)")
    parser.add_argument("--seconds", type=float, default=120, help="what a test may take (120)")
    parser.add_argument("--optimized", action="store_true", help="compile programs as users have them")
    parser.add_argument("--fresh", action="store_true", help="run the tests on the CPU again too")
    parser.add_argument("--verbose", action="store_true", help="print the whole messages of failures")
    parser.add_argument("--source", type=Path, help="PyTorch's test folder (default: one that is downloaded once)")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the results go ({FOLDER})")
    return parser


class Results:
    """What came of a file on a device, kept as a file. It is only valid for the same choice of tests."""

    def __init__(self, folder: Path, file: str, choice: dict[str, object]) -> None:
        self.path = folder / f"{file}.jsonl"
        self.choice = choice

    def read(self) -> dict[str, Outcome] | None:
        if not self.path.exists():
            return None
        first, *lines = self.path.read_text().splitlines()
        if json.loads(first) != self.choice:
            return None
        outcomes = [Outcome(**json.loads(line)) for line in lines]
        return {outcome.name: outcome for outcome in outcomes}

    def write(self, outcomes: dict[str, Outcome]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        lines = [self.choice, *(asdict(outcome) for outcome in outcomes.values())]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def judge(suite: Suite, source: Path, file: str, options: argparse.Namespace) -> Comparison:
    """Runs a file on both devices."""
    path = source / suite.within / file
    place = options.folder.resolve() / suite.name
    choice = {"torch": torch.__version__, "tests": options.tests, "sample": options.sample, "seed": options.seed}

    def outcomes(mode: str, request: Request) -> dict[str, Outcome]:
        environment = suite.environment(source, mode, options.folder.resolve() / "programs", options.optimized)
        return run_file(request, environment, options.seconds)

    kept = Results(place / "cpu", file, choice)
    cpu = None if options.fresh else kept.read()
    if cpu is None:
        cpu = outcomes("cpu", Request(path, options.tests, None, options.sample, options.seed, suite.plugins))
        if "" not in cpu:  # else the file cannot be run
            kept.write(cpu)
    kept = Results(place / options.mode, file, choice)
    before = (options.failed and kept.read()) or {}
    expected = tuple(
        name
        for name, outcome in cpu.items()
        if outcome.outcome == "passed" and (name not in before or before[name].is_bad)
    )
    tpu = {**before, **(outcomes(options.mode, Request(path, "", expected, plugins=suite.plugins)) if expected else {})}
    kept.write(tpu)
    return Comparison(file, cpu, tpu)


def files_of(suite: Suite, folder: Path, patterns: list[str]) -> list[str]:
    """The files of the suite's list that match a pattern, and files of its folder that are named in full."""
    chosen = [file for file in suite.files if any(fnmatch.fnmatch(file, pattern) for pattern in patterns)]
    for pattern in patterns:
        if not any(fnmatch.fnmatch(file, pattern) for file in chosen):
            if not (folder / pattern).is_file():
                raise ValueError(f"no file matches {pattern!r}")
            chosen.append(pattern)
    return chosen


def main() -> int:
    reader = parser()
    options = reader.parse_args()
    suite = SUITES[options.suite]
    source = pytorch_tests(options.source)
    try:
        files = files_of(suite, source / suite.within, options.files.split(","))
    except ValueError as error:
        reader.error(f"argument --files: {error}")
    report = Report(
        options.mode, known_differences(options.mode), is_whole=not options.tests and options.sample is None
    )
    with ThreadPoolExecutor(options.jobs) as pool:
        for ended in as_completed([pool.submit(judge, suite, source, file, options) for file in files]):
            comparison = ended.result()
            report.add(comparison)
            print(report.text_of(comparison, options.verbose), flush=True)
    page = options.folder / f"{suite.name}-{options.mode}.html"
    page.write_text(report.page(files))
    print(report.summary())
    print(page)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
