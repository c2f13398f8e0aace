"""`python -m torchtpu preflight`: what a TPU's compiler says of a training script, without a TPU."""

from __future__ import annotations

import argparse
import json
import pickle
import sys
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Adds the command to the parser of `python -m torchtpu`."""
    command = commands.add_parser(
        "preflight",
        help="say whether a script fits a TPU and what a step costs, without a TPU",
        description=(
            "Runs a training script on a device that computes nothing, and gives the programs of a step to the real "
            "TPU compiler (pip install libtpu). It says whether a step fits, where memory goes, what a step takes and "
            "which modules take it, which lines compile anew, and which lines read values: those are invented."
        ),
        epilog='The script is not changed. It trains on "tpu". It ends after --steps steps.',
    )
    command.add_argument("--chip", default="v5e", help="v4, v5e, v5p, v6e, tpu7x, or a topology such as v5e:4x4")
    command.add_argument(
        "--mesh",
        default="",
        metavar="AXES",
        help="axes of the ranks on the topology, such as fsdp=8,tp=2: the script is rank 0, as under torchrun",
    )
    command.add_argument("--steps", type=int, default=3, help="how many steps to record (default 3)")
    command.add_argument(
        "--batch",
        metavar="SIZES",
        default="",
        help="sizes of the batch to compare, such as 1,2,4,8: of the script's DataLoaders, or in the place of {batch} "
        "in its arguments; `largest` searches for the largest that fits",
    )
    command.add_argument(
        "--assume",
        action="append",
        default=[],
        metavar="LINE=N",
        help="what a line that is listed as reading values gets, and the size that data decides there: train.py:31=512",
    )
    command.add_argument("--no-suggestions", action="store_true", help="do not try what would make a step faster")
    command.add_argument("--change", default="", help=argparse.SUPPRESS)
    command.add_argument("--recording", type=Path, help=argparse.SUPPRESS)
    command.add_argument("--deep", action="store_true", help="compile to the end: minutes, for estimates in cycles")
    command.add_argument("--what-if", metavar="CHIPS", default="", help="other chips to compare with, such as v6e,v5p")
    command.add_argument("--mode", choices=["strict", "fused"], default="fused", help="the eager mode (default fused)")
    command.add_argument(
        "--time-limit", type=float, default=600.0, metavar="SECONDS", help="for the script, and for each compile"
    )
    command.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON; - for the terminal")
    command.add_argument("--html", type=Path, metavar="FILE", help="write the report as one page")
    command.add_argument("script", type=Path)
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(options: argparse.Namespace) -> int:
    """Does what the command line says. Returns 0, 1 if the script failed or no program could be judged, or 2 for wrong
    options."""
    from torchtpu.preflight import changes, recording
    from torchtpu.preflight.chips import topology_of
    from torchtpu.preflight.compiler import Compilers
    from torchtpu.preflight.mesh import on, parse
    from torchtpu.preflight.reruns import Rerun
    from torchtpu.preflight.run import PROCESSES, judge

    try:
        mesh = parse(options.mesh, options.chip)
        others = [name for name in options.what_if.split(",") if name]
        for name in others:
            on(mesh, name)
        sizes, find_largest = _sizes(options.batch)
        assume = dict(map(_assumed, options.assume))
    except ValueError as error:
        return _refuse(str(error))
    if not options.script.is_file():
        return _refuse(f"there is no script {options.script}")
    if options.steps < 1:
        return _refuse("--steps must be at least 1")
    recording.prepare(topology_of(options.chip), assume)
    arguments = options.arguments
    rerun = Rerun(
        options.chip,
        options.mesh,
        str(options.script),
        tuple(arguments),
        options.steps,
        options.mode,
        options.time_limit,
        assume,
    )
    recorded_size = None
    if changes.has_place(arguments) and (sizes or find_largest):
        recorded_size = sizes[0] if sizes else 1
    with Compilers(options.time_limit) as compilers:
        if not options.recording:
            # They load their libraries while the script runs.
            for _ in range(PROCESSES):
                compilers.start()
        try:
            change = options.change or (f"batch={recorded_size}" if recorded_size else "")
            arguments, check = changes.apply(change, arguments)
            recorded = recording.record_script(
                str(options.script), arguments, options.steps, options.time_limit, options.mode, mesh
            )
            if not recorded.failure:
                check()
        except changes.ChangeError as error:
            return _refuse(str(error))
        if options.recording:
            options.recording.write_bytes(pickle.dumps(recorded))
            return 0
        sys.stdout.flush()
        report = judge(
            recorded,
            options.chip,
            deep=options.deep,
            time_limit=options.time_limit,
            what_if=others,
            sizes=sizes,
            recorded_size=recorded_size,
            find_largest=find_largest,
            mesh=mesh,
            suggest=not options.no_suggestions,
            rerun=lambda wanted: rerun(f"{change},{wanted}" if wanted.startswith("head") else wanted),
            compilers=compilers,
            progress=_progress,
        )
    if options.json and str(options.json) == "-":
        print(json.dumps(report.as_dict(), indent=1))
    else:
        print(report)
    if options.json and str(options.json) != "-":
        options.json.write_text(json.dumps(report.as_dict(), indent=1))
    if options.html:
        options.html.write_text(report.html())
    return 1 if recorded.failure or report.problems or not report.analyses else 0


def _sizes(text: str) -> tuple[list[int], bool]:
    """The sizes of `--batch`, and whether the largest is searched for."""
    words = [word for word in text.split(",") if word]
    sizes = [int(word) if word.isdecimal() else 0 for word in words if word != "largest"]
    if any(size < 1 for size in sizes):
        raise ValueError(f"--batch takes sizes such as 1,2,4, or largest, not {text}")
    return sizes, "largest" in words


def _assumed(text: str) -> tuple[str, int]:
    line, _, number = text.rpartition("=")
    if not line.rpartition(":")[2].isdecimal() or not number.isdecimal():
        raise ValueError(f"--assume takes a line and a number such as train.py:31=512, not {text}")
    return line, int(number)


def _refuse(message: str) -> int:
    print(f"python -m torchtpu preflight: {message}", file=sys.stderr)
    return 2


def _progress(message: str) -> None:
    if sys.stderr.isatty():
        print(message, file=sys.stderr)
