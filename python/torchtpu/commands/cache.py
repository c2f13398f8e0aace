"""`python -m torchtpu cache`: shows the folder of compiled programs, empties it, and copies it to other machines."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from torchtpu import _C


def add_to(commands: Any) -> None:
    """Adds the command and its subcommands to the parser of `python -m torchtpu`."""
    cache = commands.add_parser(
        "cache",
        help="look at the folder of compiled programs, empty it, carry it elsewhere",
        description="Compiled programs are kept on disk, and loaded by whichever process needs the same ones again.",
        epilog=(
            "TORCHTPU_CACHE_DIR=folder puts them elsewhere; TORCHTPU_CACHE_BYTES=4G bounds them, and those used least "
            "recently go first; TORCHTPU_CACHE=0 keeps none."
        ),
    )
    actions = cache.add_subparsers(dest="action", required=True, metavar="action")
    for name, text in [("stats", "show how many programs there are, and for what"), ("list", "show each program")]:
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument("--json", action="store_true", help="print JSON")
    actions.add_parser("clear", help="remove all programs", description="Removes all programs.")
    for name, text in [
        ("export", "write all programs into a bundle"),
        ("import", "add the programs of a bundle that are for this machine's plugin and devices"),
    ]:
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        action.add_argument("file", type=Path, metavar="FILE")
    build = actions.add_parser(
        "build",
        help="compile programs for a TPU, without one, into a bundle",
        description=(
            "Compiles programs with libtpu for a TPU that need not be there. The bundle warms the cache of machines "
            "that have such a TPU and the same libtpu. torchtpu._C.dump_programs(folder) writes the programs of a run; "
            "with TORCHTPU_TARGET=tpu in the environment they are those that a TPU would be given."
        ),
    )
    build.add_argument("--topology", required=True, help="such as v5e:1x1 or v6e:2x2")
    build.add_argument("--kernels", type=Path, metavar="FILE", help="a file whose kernels' examples are compiled too")
    build.add_argument(
        "--serve",
        metavar="ARGUMENTS",
        help="the programs of `vllm serve ARGUMENTS`, a model and its options, quoted as one word",
    )
    build.add_argument("folder", type=Path, metavar="FOLDER", nargs="?", help="where the programs are, as *.mlir")
    build.add_argument("bundle", type=Path, metavar="BUNDLE")


def run(options: argparse.Namespace) -> int:
    """Runs the command and returns the exit status."""
    try:
        match options.action:
            case "stats":
                return _stats(options.json)
            case "list":
                return _list(options.json)
            case "clear":
                from torchtpu.kernels.store import TEXTS
                from torchtpu.preflight.compiler import DUMPS

                print(f"removed {_count(_C.cache_clear())}")
                TEXTS.clear()
                DUMPS.clear()
            case "export":
                print(f"wrote {_count(_C.cache_export(options.file))} to {options.file}")
            case "import":
                return _import(options.file)
            case "build":
                return _build(options.folder, options.kernels, options.serve, options.topology, options.bundle)
    except RuntimeError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _stats(as_json: bool) -> int:
    folder, limit = _C.cache_folder()
    entries = _C.cache_list()
    targets: dict[str, int] = {}
    for entry in entries:
        target = entry["target"] or "unknown: not written by this version of torchtpu"
        targets[target] = targets.get(target, 0) + 1
    facts = {
        "folder": str(folder),
        "programs": len(entries),
        "bytes": sum(entry["bytes"] for entry in entries),
        "bytes_allowed": limit,
        "compile_seconds": sum(entry["compile_seconds"] or 0 for entry in entries),
        "targets": targets,
    }
    if as_json:
        print(json.dumps(facts, indent=2))
        return 0
    print(f"folder    {folder}")
    print(f"programs  {len(entries)}, which took {facts['compile_seconds']:.1f} s to compile")
    print(f"size      {_size(facts['bytes'])} of {_size(limit)}")
    for target, count in targets.items():
        print(f"\n{_count(count)} for")
        for line in target.splitlines():
            print(f"  {line}")
    return 0


def _list(as_json: bool) -> int:
    entries = _C.cache_list()
    if as_json:
        print(json.dumps(entries, indent=2))
        return 0
    print(f"{'last used':<17}{'size':>10}{'compiled in':>13}  {'name':<12}  operators")
    for entry in entries:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry["used"]))
        seconds = "" if entry["compile_seconds"] is None else f"{entry['compile_seconds']:.2f} s"
        operators = "(not written by this version of torchtpu)" if entry["operators"] is None else entry["operators"]
        print(f"{used:<17}{_size(entry['bytes']):>10}{seconds:>13}  {entry['name'][:12]:<12}  {operators}")
    return 0


def _import(file: Path) -> int:
    done = _C.cache_import(file)
    print(f"added {_count(done['added'])}; {done['known']} were here already")
    if done["damaged"]:
        print(f"{_count(done['damaged'])} left out, as the bundle is damaged there", file=sys.stderr)
    if done["refused"]:
        print(f"{_count(done['refused'])} left out, which this machine cannot use:", file=sys.stderr)
        for difference in done["differences"]:
            print(f"  {difference}", file=sys.stderr)
    return 0 if done["added"] or done["known"] or not (done["damaged"] or done["refused"]) else 1


def _build(folder: Path | None, kernels: Path | None, serve: str | None, topology: str, bundle: Path) -> int:
    with tempfile.TemporaryDirectory() as own:
        folders = [] if folder is None else [folder]
        if kernels is not None:
            call = f"from torchtpu.commands import kernels; kernels.write_programs({str(kernels)!r}, %r)"
            folders.append(_written(call, Path(own, "kernels"), {"TORCHTPU_TARGET": "tpu"}))
        if serve is not None:
            call = f"from torchtpu.vllm import ahead; ahead.write_programs({shlex.split(serve)!r}, %r)"
            folders.append(_written(call, Path(own, "serve"), {"TORCHTPU_DRY": topology, "TORCHTPU_VLLM": "1"}))
        paths = sorted(path for each in folders for path in each.glob("*.mlir"))
        if not paths:
            print(f"there are no *.mlir files in {folder}" if folder else "there are no programs", file=sys.stderr)
            return 1
        return _build_of(paths, topology, bundle)


def _written(call: str, folder: Path, variables: dict[str, str]) -> Path:
    """The folder, which a process with these variables has filled. RuntimeError if it failed; it has said why."""
    folder.mkdir()
    environment = {**os.environ, "TORCHTPU_CACHE": "0", **variables}
    if subprocess.run([sys.executable, "-c", call % str(folder)], env=environment, check=False).returncode:
        raise RuntimeError("nothing was built: the programs could not be written")
    return folder


def _build_of(paths: list[Path], topology: str, bundle: Path) -> int:
    reasons = _C.bundle_ahead([path.read_text() for path in paths], topology, bundle)
    for path, reason in zip(paths, reasons, strict=True):
        if reason is not None:
            print(f"{path.name} is left out: {reason}", file=sys.stderr)
    built = sum(reason is None for reason in reasons)
    print(f"wrote {_count(built)} for {topology} to {bundle}")
    return 0 if built == len(paths) else 1


def _count(programs: int) -> str:
    return f"{programs} program" if programs == 1 else f"{programs} programs"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
