"""Runs the tests of helion's Pallas backend, and of inductor's, on "tpu". `make judge-kernels` runs them.

They are those of helion and PyTorch as published, in folders that are given. None of them is part of this repository.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from tests.judge.files import Outcome, Request, run_file
from tests.judge.report import Comparison, Report, known_differences
from tests.judge.suites import ROOT
from tests.settings import MODES, with_quick_compiles

FOLDER = Path("build/judge")
CLIENT = {
    "HELION_BACKEND": "pallas",
    "HELION_AUTOTUNE_EFFORT": "none",
    "JAX_PLATFORMS": "cpu",
    "OMP_NUM_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",
    "PYTORCH_TESTING_DEVICE_ONLY_FOR": "privateuse1",
}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.judge.kernels",
        description="Runs test_pallas.py of helion and of PyTorch on 'tpu'. Writes a page with the failures.",
        epilog="Fails if a test fails that known.toml does not list.",
    )
    parser.add_argument("--helion", type=Path, help="a checkout of helion")
    parser.add_argument("--pytorch", type=Path, help="a checkout of PyTorch; its folder test/inductor is enough")
    parser.add_argument("--tests", default="", metavar="REGEX", help="only tests whose names contain this")
    parser.add_argument("--mode", choices=MODES, default="strict", help="the eager mode (strict)")
    parser.add_argument("--seconds", type=float, default=300, help="what a test may take (300)")
    parser.add_argument("--verbose", action="store_true", help="print the whole messages of failures")
    parser.add_argument("--folder", type=Path, default=FOLDER, help=f"where the results go ({FOLDER})")
    return parser


def judge(name: str, checkout: Path, file: str, options: argparse.Namespace) -> Comparison:
    """Runs a file. All tests that it does not skip are expected to pass."""
    paths = [str(checkout), str(ROOT), os.environ.get("PYTHONPATH")]
    environment = {
        **os.environ,
        **CLIENT,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TORCHTPU_EAGER_MODE": options.mode,
        "TORCHTPU_CACHE_DIR": str(options.folder.resolve() / "programs"),
        "XLA_FLAGS": with_quick_compiles(os.environ.get("XLA_FLAGS", "")),
    }
    request = Request(checkout / file, options.tests, plugins=("tests.judge.clients",))
    outcomes = run_file(request, environment, options.seconds)
    expected = {
        test: Outcome(test, "passed") for test, outcome in outcomes.items() if test and outcome.outcome != "skipped"
    }
    if "" in outcomes:
        expected.setdefault("the file", Outcome("the file", "passed"))
    return Comparison(f"{name}/{Path(file).name}", expected, outcomes)


def main() -> int:
    options = parser().parse_args()
    suites = [("helion", options.helion, "test/test_pallas.py")]
    suites.append(("inductor", options.pytorch, "test/inductor/test_pallas.py"))
    given = [(name, checkout.resolve(), file) for name, checkout, file in suites if checkout is not None]
    if not given:
        parser().error("name a checkout: --helion FOLDER, --pytorch FOLDER")
    report = Report(options.mode, known_differences(options.mode), is_whole=not options.tests)
    for name, checkout, file in given:
        comparison = judge(name, checkout, file, options)
        report.add(comparison)
        print(report.text_of(comparison, options.verbose), flush=True)
    options.folder.mkdir(parents=True, exist_ok=True)
    page = options.folder / f"kernels-{options.mode}.html"
    page.write_text(report.page(list(report.comparisons)))
    print(report.summary())
    print(page)
    return 0 if report.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
