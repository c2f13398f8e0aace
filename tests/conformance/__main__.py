"""Runs the conformance cases and reports. `make conformance` runs all of them."""

from __future__ import annotations

import argparse
import dataclasses
import json
import random
import sys
from pathlib import Path
from typing import Any

import torchtpu

from tests.conformance import ahead
from tests.conformance.cases import COMPILED_DTYPES, DIRECTIONS, DTYPES, MODES, Case, cases, is_for_cuda_only
from tests.conformance.exceptions import expected_failure
from tests.conformance.judge import INPUTS, Verdict
from tests.conformance.report import summarize, write_report
from tests.conformance.workers import Settings, run_all
from tests.progress import Progress

FOLDER = Path("build/conformance")
# For at most this many cases, the failures are printed too.
FEW = 100
# A stopped run is only continued with the same extension.
BUILT = int(Path(torchtpu._C.__file__).stat().st_mtime)


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Runs what PyTorch tests of its operators, modules and optimizers on 'tpu' and compares with the "
        "CPU, or compiles it for TPUs. Writes results.jsonl, summary.json and index.html. A run that was stopped goes "
        "on where it was.",
        epilog="Fails if a case fails that expected_failures.toml (with --compile-for, tpu_refusals.toml) does not "
        "list or, with --optimized, if one that it lists passes.",
    )
    parser.add_argument(
        "cases", type=Case.parse, nargs="*", metavar="CASE", help="only this one: abs/int8/forward/strict"
    )
    parser.add_argument("--operators", type=_names, default=("*",), metavar="NAMES", help="such as 'linalg.*,nn.LSTM'")
    parser.add_argument("--dtypes", type=_names, metavar="NAMES", help=",".join(DTYPES))
    parser.add_argument(
        "--cuda-only",
        action="store_true",
        help="only dtypes of an operator that PyTorch lists for CUDA and not for the CPU",
    )
    parser.add_argument("--directions", type=_names, metavar="NAMES", help=",".join(DIRECTIONS))
    modes = parser.add_mutually_exclusive_group()
    modes.add_argument("--modes", type=_names, default=MODES, metavar="NAMES", help=",".join(MODES))
    modes.add_argument(
        "--compile-for",
        type=_chips,
        metavar="NAMES",
        help=f"instead of comparing, ask libtpu's compiler whether it takes the programs: {','.join(ahead.TOPOLOGIES)}",
    )
    parser.add_argument(
        "--inputs",
        type=int,
        metavar="N",
        help=f"at most so many of each ({INPUTS}; {ahead.INPUTS} to compile for TPUs)",
    )
    parser.add_argument("--sample", type=int, metavar="N", help="draw N cases at random from the selection")
    parser.add_argument("--seed", type=int, default=0, help="for the draw, and for every case's inputs (0)")
    parser.add_argument("--failed", action="store_true", help="of the selection, only what failed in the last run")
    parser.add_argument(
        "--optimized", action="store_true", help="compile programs as users have them, which takes twice as long"
    )
    parser.add_argument("--workers", type=int, default=2, metavar="N", help="processes (2)")
    parser.add_argument("--timeout", type=float, default=180, metavar="SECONDS", help="what a case may take (180)")
    parser.add_argument("--folder", type=Path, help=f"where the results go ({FOLDER}; {FOLDER}-tpu)")
    parser.add_argument("--fresh", action="store_true", help="do not go on with a run that was stopped")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _chips(text: str) -> tuple[str, ...]:
    if unknown := set(_names(text)) - set(ahead.TOPOLOGIES):
        raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; choose from {', '.join(ahead.TOPOLOGIES)}")
    return _names(text)


def settle(options: argparse.Namespace) -> None:
    """Sets the options that depend on what is done: comparing, or compiling for TPUs."""
    if options.cases:
        options.modes = tuple({case.mode for case in options.cases})
    elif options.compile_for:
        options.modes = options.compile_for
    compiles = any(mode in ahead.TOPOLOGIES for mode in options.modes)
    options.dtypes = options.dtypes or _default_dtypes(compiles, options.cuda_only)
    options.directions = options.directions or (ahead.DIRECTIONS if compiles else DIRECTIONS)
    options.inputs = options.inputs or (ahead.INPUTS if compiles else INPUTS)
    options.folder = options.folder or (FOLDER.with_name(f"{FOLDER.name}-tpu") if compiles else FOLDER)
    if compiles:
        options.optimized = True
        ahead.write_for_tpus()


def _default_dtypes(compiles: bool, cuda_only: bool) -> tuple[str, ...]:
    if cuda_only:
        return (*COMPILED_DTYPES, "complex32")
    return COMPILED_DTYPES if compiles else DTYPES


def select(options: argparse.Namespace) -> list[Case]:
    chosen = options.cases or list(cases(options.operators, options.dtypes, options.directions, options.modes))
    if options.cuda_only:
        chosen = [case for case in chosen if is_for_cuda_only(case)]
    if options.sample is not None:
        drawn = random.Random(options.seed).sample(chosen, min(options.sample, len(chosen)))
        chosen = [case for case in chosen if case in set(drawn)]
    return chosen


class Results:
    """The file of verdicts. Its first line says what they are valid for. A later verdict on a case replaces an
    earlier one."""

    def __init__(self, path: Path, settings: dict[str, Any]) -> None:
        self.path = path
        self.settings = settings
        self.verdicts: dict[str, Verdict] = {}
        lines = path.read_text().splitlines() if path.exists() else []
        if lines and json.loads(lines[0]) == settings:
            # The last line of a stopped run may be incomplete.
            found = [Verdict(**json.loads(line)) for line in lines[1:] if line.endswith("}")]
            self.verdicts = {verdict.case: verdict for verdict in found}
        self.forget(set())

    def forget(self, cases: set[str]) -> None:
        self.verdicts = {case: verdict for case, verdict in self.verdicts.items() if case not in cases}
        lines = [self.settings, *(dataclasses.asdict(verdict) for verdict in self.verdicts.values())]
        self.path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def append(self, verdict: Verdict) -> None:
        verdict.built = BUILT
        self.verdicts[verdict.case] = verdict
        with self.path.open("a") as file:
            file.write(json.dumps(dataclasses.asdict(verdict)) + "\n")


def main() -> int:
    options = parser().parse_args()
    settle(options)
    options.folder.mkdir(parents=True, exist_ok=True)
    settings = Settings(options.inputs, options.seed, options.optimized)
    results = Results(options.folder / "results.jsonl", dataclasses.asdict(settings))
    chosen = select(options)
    if options.failed:
        chosen = [case for case in chosen if (last := results.verdicts.get(str(case))) and last.is_failure]
    if not chosen:
        print("no case is selected", file=sys.stderr)
        return 2
    names = {str(case) for case in chosen}
    done = {case for case, verdict in results.verdicts.items() if verdict.built == BUILT}
    remaining = [case for case in chosen if str(case) not in done]
    if options.fresh or not remaining:
        remaining = chosen
        if not options.failed:
            results.forget(names)
    progress = Progress(len(chosen), len(chosen) - len(remaining))
    for verdict in run_all(remaining, options.workers, options.timeout, settings):
        results.append(verdict)
        progress.step(str(verdict.case), is_failure=verdict.is_failure)
        if verdict.is_failure and expected_failure(verdict.case) is None and len(chosen) <= FEW:
            print(f"\n{verdict.status} {verdict.case}\n  on {verdict.inputs}\n  {verdict.why}", file=sys.stderr)
    verdicts = [results.verdicts[str(case)] for case in chosen]
    summary = summarize(verdicts, settings.is_optimized)
    write_report(options.folder, summary, verdicts)
    print(summary.text())
    print(f"{options.folder}/index.html")
    return 0 if summary.is_good else 1


if __name__ == "__main__":
    sys.exit(main())
