"""`python -m torchtpu explain`: runs a script and shows what ran on the device, what was compiled, and why."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torchtpu import tpu
from torchtpu.scripts import run_script


def add_to(commands: Any) -> None:
    """Adds the command to the parser of `python -m torchtpu`."""
    command = commands.add_parser(
        "explain",
        help="run a script and say what ran on the device, what compiled, and why",
        description=(
            "Runs a script under torch.tpu.explain(), and prints behind its own output: the programs that ran, the "
            "operators in them, why each ran and where in the script, why each was compiled, and where time went."
        ),
    )
    command.add_argument("--mode", choices=["debug", "strict", "fused"], help="the eager mode, instead of the script's")
    command.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")
    command.add_argument("--trace", type=Path, metavar="FILE", help="write a trace for https://ui.perfetto.dev")
    command.add_argument("script", type=Path)
    command.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns the script's exit status."""
    if not options.script.is_file():
        print(f"python -m torchtpu explain: there is no script {options.script}", file=sys.stderr)
        return 2
    if options.mode:
        tpu.set_eager_mode(options.mode)
    with tpu.explain() as explanation:
        status = _status_of(str(options.script), options.arguments)
    sys.stdout.flush()
    print(explanation)
    if options.json:
        explanation.save_json(options.json)
    if options.trace:
        explanation.save_chrome_trace(options.trace)
    return status


def _status_of(path: str, arguments: Sequence[str]) -> int:
    try:
        run_script(path, arguments)
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except Exception:  # what ran until then is explained
        traceback.print_exc()
        return 1
    return 0
