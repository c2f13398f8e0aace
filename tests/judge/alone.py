"""Runs files of tests on "tpu" alone: all that they do not skip is expected to pass."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path

from tests.judge.files import Outcome, Request, run_file
from tests.judge.report import Comparison, Report, known_differences
from tests.settings import MODES, with_quick_compiles

FOLDER = Path("build/judge")


def add_options(parser: argparse.ArgumentParser, seconds: float) -> None:
    parser.add_argument("--tests", default="", metavar="REGEX", help="only tests whose names contain this")
    parser.add_argument("--mode", choices=MODES, default="strict", help="the eager mode (strict)")
    parser.add_argument("--seconds", type=float, default=seconds, help=f"what a test may take ({seconds:.0f})")
    parser.add_argument("--verbose", action="store_true", help="print the whole messages of failures")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the results go ({FOLDER})")


def judge(
    name: str,
    file: Path,
    options: argparse.Namespace,
    paths: Iterable[Path] = (),
    variables: dict[str, str] | None = None,
    plugins: tuple[str, ...] = (),
) -> Comparison:
    """Runs a file. `paths` are folders of modules that it imports, `variables` what its environment has besides."""
    environment = {
        **os.environ,
        **(variables or {}),
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "TORCHTPU_EAGER_MODE": options.mode,
        "TORCHTPU_CACHE_DIR": str(options.folder.resolve() / "programs"),
        "XLA_FLAGS": with_quick_compiles(os.environ.get("XLA_FLAGS", "")),
    }
    outcomes = run_file(Request(file, options.tests, plugins=plugins), environment, options.seconds)
    expected = {
        test: Outcome(test, "passed") for test, outcome in outcomes.items() if test and outcome.outcome != "skipped"
    }
    if "" in outcomes:
        expected.setdefault("the file", Outcome("the file", "passed"))
    return Comparison(name, expected, outcomes)


def show(page: str, mode: str, comparisons: Iterable[Comparison], options: argparse.Namespace) -> int:
    """Prints each comparison when it is there, and writes the page of this name. Returns the exit status."""
    report = Report(mode, known_differences(mode), is_whole=not options.tests)
    for comparison in comparisons:
        report.add(comparison)
        print(report.text_of(comparison, options.verbose), flush=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    path = options.folder / f"{page}.html"
    path.write_text(report.page(list(report.comparisons)))
    print(report.summary())
    print(path)
    return 0 if report.is_good else 1
