"""Checks that the suite finds faults: each mutant is a fault in the Rust code, and some test must fail.

    python -m tests.mutants                  # all; builds once, in build/mutants
    python -m tests.mutants maximum strides  # some

All faults are built into one extension, and TORCHTPU_MUTANT selects one. The working tree is not changed: the faults
are inserted into a copy of the last commit.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
COPY = ROOT / "build" / "mutants"


class Mutant(NamedTuple):
    name: str
    path: str
    line: str
    """The part of the source that gets the fault."""
    right: str
    wrong: str
    tests: str


OPS, COMMON = "crates/aten/src/ops", "crates/aten/src/common"
KEY, VIEW = "crates/engine/src/registry/key.rs", "crates/aten/src/view.rs"
VIEWS = "tests/engine/test_views.py"
MUTANTS = (
    Mutant("maximum", f"{OPS}/elementwise/binary.rs", '"maximum"', "x.max(y)", "x.min(y)", "binary"),
    Mutant("atan2", f"{OPS}/elementwise/binary.rs", '"atan2"', "x.atan2(y)", "y.atan2(x)", "binary"),
    Mutant("expm1", f"{OPS}/elementwise/unary.rs", '"expm1"', "x.exp_m1()", "x.exp()", "unary"),
    Mutant("erfc", f"{OPS}/elementwise/special.rs", '"erfc"', "x.erfc()", "x.erf()", "special"),
    Mutant("cumsum", f"{OPS}/reduce/scan.rs", '"cumsum"', "a + x", "a - x", "scan"),
    Mutant("std", f"{OPS}/reduce/reductions.rs", '"std.correction"', "v.sqrt()", "v", "reductions"),
    Mutant("sort", f"{OPS}/reduce/sort.rs", "= sorted(x,", 'cx.bool("descending")?', "false", "sort"),
    Mutant("tril", f"{OPS}/shape/rearrange.rs", '"tril"]', "Triangle::Lower", "Triangle::Upper", "rearrange"),
    Mutant(
        "accumulate", f"{OPS}/index/indexing.rs", "        let combine =", 'cx.bool("accumulate")?', "false", "indexing"
    ),
    Mutant(
        "padding",
        f"{OPS}/nn/pool.rs",
        "let include_padding",
        'cx.bool("count_include_pad")?',
        '!cx.bool("count_include_pad")?',
        "pool",
    ),
    Mutant("masks", f"{COMMON}/index_check.rs", "cx.check_that(joint", "joint.eq(length)", "joint.eq(joint)", "checks"),
    Mutant("reflect", f"{OPS}/nn/pad.rs", '"reflection_pad1d", ', "Edge::Reflect", "Edge::Replicate", "pad"),
    Mutant("numbers", KEY, "Number::Float(f) => [2", "f.to_bits()", "0", "tests/engine/test_constants.py"),
    Mutant("strides", KEY, "strides.iter()", "strides", "&strides[..0]", VIEWS),
    Mutant("sizes in lists", KEY, "arg.ints().iter()", "arg.ints()", "&arg.ints()[..0]", VIEWS),
    Mutant("conjugation", KEY, "let lazy =", "u64::from(tensor.is_conj)", "0", VIEWS),
    Mutant("lazy negation", KEY, "let lazy =", "u64::from(tensor.is_neg)", "0", VIEWS),
    Mutant("aliases", KEY, "let head = Tag::Tensor as u64", "(index as u64)", "0", VIEWS),
    Mutant("part that covers", VIEW, "numel != base.numel()", "numel != base.numel()", "false", VIEWS),
    Mutant("dense order", VIEW, "!= expected", "strides[i] != expected", "strides[i] > expected", VIEWS),
    Mutant("between the steps", VIEW, ".select(spread(boxed), old)", "old", "spread(boxed)", VIEWS),
    Mutant("negation", VIEW, "if spec.is_neg", "spec.is_neg", "false", VIEWS),
    Mutant("old values", VIEW, "Some(ty) => covers(", "covers(ty, spec).is_none()", "false", VIEWS),
)


def put_in(mutant: Mutant) -> None:
    path = COPY / mutant.path
    lines = path.read_text().splitlines(keepends=True)
    places = [place for place, line in enumerate(lines) if mutant.line in line and mutant.right in line]
    if len(places) != 1:
        sys.exit(f"{mutant.name}: {len(places)} lines of {mutant.path} have {mutant.line!r} and {mutant.right!r}")
    before, right, after = lines[places[0]].partition(mutant.right)
    chosen = f'std::env::var("TORCHTPU_MUTANT").as_deref() == Ok("{mutant.name}")'
    lines[places[0]] = f"{before}(if {chosen} {{ {mutant.wrong} }} else {{ {right} }}){after}"
    path.write_text("".join(lines))


def build() -> None:
    """An extension with all faults, in a copy of the last commit."""

    def git(*arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True)

    if COPY.exists():
        git("worktree", "remove", "--force", str(COPY))
    git("worktree", "add", "--detach", str(COPY), "HEAD")
    for mutant in MUTANTS:
        put_in(mutant)
    command = f'eval "$({sys.executable} build_backend/torchtpu_build.py)" && cargo build --package torchtpu --lib'
    environment = {**os.environ, "CARGO_TARGET_DIR": str(ROOT / "build" / "mutants-target")}
    subprocess.run(["bash", "-c", command], cwd=COPY, env=environment, check=True)
    shutil.copy(ROOT / "build/mutants-target/debug/libtorchtpu.so", COPY / f"python/torchtpu/_C{EXTENSION_SUFFIXES[0]}")


def first_failure(mutant: Mutant) -> str | None:
    """The test that finds the fault."""
    tests = mutant.tests if "/" in mutant.tests else f"tests/operators/test_{mutant.tests}.py"
    environment = {**os.environ, "TORCHTPU_MUTANT": mutant.name, "PYTHONPATH": f"{COPY / 'python'}:{COPY}"}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", tests]
    finished = subprocess.run(command, cwd=COPY, env=environment, capture_output=True, text=True)
    if finished.returncode == 0:
        return None
    failed = [line for line in finished.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].split(" - ")[0] if failed else f"exit status {finished.returncode}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Puts faults in, and runs the tests.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(mutant.name for mutant in MUTANTS))
    parser.add_argument("--built", action="store_true", help="do not build again")
    options = parser.parse_args()
    if not options.built:
        build()
    survivors = []
    for mutant in MUTANTS:
        if not options.names or mutant.name in options.names:
            found = first_failure(mutant)
            print(f"{mutant.name}: {found or 'SURVIVES'}", flush=True)
            survivors += [] if found else [mutant.name]
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
