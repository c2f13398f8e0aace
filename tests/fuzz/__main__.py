"""Runs many random programs, in slices of processes, with a log from which an interrupted run resumes.

    make fuzz FUZZ="--programs 10000"              # programs whose sizes change
    make fuzz FUZZ="--programs 5000 --constant"    # programs of constant sizes
    make fuzz FUZZ="--first 1234 --programs 1"     # one of them

The log has a line for each program: its seed, the lines that ran in each mode, and the short program that fails if the
device and the CPU differ.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.settings import MODES, with_quick_compiles

SLICE = 100
# The longest time of a slice, for programs that hang.
PATIENCE = 6 * 3600


def run_slice(first: int, count: int, is_constant: bool) -> None:
    """Runs in a process of its own. Prints a line of JSON for each program."""
    import torch
    from torchtpu import _C

    from tests.fuzz.changing_sizes import program
    from tests.fuzz.program_lines import MAKERS
    from tests.fuzz.program_runs import as_python, first_difference, shrink
    from tests.fuzz.random_programs import Generator
    from tests.fuzz.test_property import LENGTH as CONSTANT_LENGTH

    for seed in range(first, first + count):
        steps = Generator(seed, MAKERS).program(CONSTANT_LENGTH) if is_constant else program(seed)
        torch.tpu.set_eager_mode("strict")  # type: ignore[attr-defined]
        _C.set_sizes("dynamic")
        told: dict[str, Any] = {"seed": seed, "modes": lines_by_mode(step.text for step in steps)}
        if first_difference(steps, "tpu") is not None:
            short = shrink(steps, "tpu")
            found = first_difference(short, "tpu")
            told["difference"] = f"line {found[0] + 1}: {found[1]}" if found else "not again"
            told["program"] = as_python(short, "tpu")
        print(json.dumps(told), flush=True)


def lines_by_mode(lines: Iterable[str]) -> dict[str, int]:
    mode, counts = "strict", Counter[str]()
    for line in lines:
        mode = line.split('"')[1] if line.startswith('mode("') else mode
        counts[mode] += not line.startswith(("mode(", "sizes("))
    return dict(+counts)


def read(log: Path) -> dict[int, dict[str, Any]]:
    found = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {each["seed"]: each for each in found}


def summary(done: dict[int, dict[str, Any]]) -> str:
    lines, programs = Counter[str](), Counter[str]()
    for each in done.values():
        lines.update(each.get("modes", {}))
        programs.update(each.get("modes", {}).keys())
    by_mode = ", ".join(f"{mode} {programs[mode]} ({lines[mode]} lines)" for mode in MODES)
    failed = sum("difference" in each for each in done.values())
    return f"{len(done)} programs; with lines in {by_mode}; {failed} differ"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", type=int, default=1000, help="how many (default: 1000)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--constant", action="store_true", help="programs whose sizes do not change")
    parser.add_argument("--log", type=Path, help="default: build/fuzz/changing.jsonl or constant.jsonl")
    parser.add_argument("--slice", nargs=2, type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.slice:
        first, count = options.slice
        run_slice(first, count, options.constant)
        return 0
    log = options.log or Path("build/fuzz") / ("constant.jsonl" if options.constant else "changing.jsonl")
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = {
        **os.environ,
        "TORCHTPU_CACHE_DIR": str(log.parent.absolute() / "programs"),
        "XLA_FLAGS": with_quick_compiles(os.environ.get("XLA_FLAGS", "")),
        # In Fused, programs of several operators are to be tested.
        "TORCHTPU_COMPILE": "wait",
    }
    environment.setdefault("OMP_NUM_THREADS", "1")
    wanted = range(options.first, options.first + options.programs)
    done, begun = read(log), time.monotonic()
    while missing := [seed for seed in wanted if seed not in done]:
        first = missing[0]
        count = next((i for i in range(SLICE) if first + i not in missing[: SLICE + 1]), SLICE)
        command = [sys.executable, "-m", "tests.fuzz", "--slice", str(first), str(count)]
        command += ["--constant"] * options.constant
        with log.open("a") as out:
            try:
                run = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, env=environment, timeout=PATIENCE)
                ended = "" if run.returncode == 0 else f"ended with {run.returncode}: {run.stderr.decode()[-800:]}"
            except subprocess.TimeoutExpired:
                ended = f"did not end within {PATIENCE} s"
        done = read(log)
        if ended:
            lost = next((seed for seed in range(first, first + count) if seed not in done), first)
            with log.open("a") as out:
                print(json.dumps({"seed": lost, "modes": {}, "difference": ended}), file=out)
            done = read(log)
        print(f"{time.monotonic() - begun:.0f} s: {summary({s: done[s] for s in wanted if s in done})}", flush=True)
    for seed in wanted:
        if "difference" in done[seed]:
            print(f"\nseed {seed}: {done[seed]['difference']}\n\n{done[seed].get('program', '')}")
    return 1 if any("difference" in done[seed] for seed in wanted) else 0


if __name__ == "__main__":
    sys.exit(main())
