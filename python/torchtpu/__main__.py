"""`python -m torchtpu`: `info`, what torchtpu would run on, for a first look and for bug reports; `explain`, what a
script does to the device; `cache`, the folder of compiled programs; `kernels`, what a TPU's compiler says of them."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from typing import Any

import torch

import torchtpu
from torchtpu import _C
from torchtpu.commands import cache, explain, kernels, preflight


def main(arguments: list[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m torchtpu", description="Tools around torchtpu, a PyTorch device named tpu."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    info = commands.add_parser(
        "info",
        help="show the plugin, its versions, the devices and their memory",
        description=(
            "Opens the plugin that torchtpu would use and shows it: path and platform, PJRT and StableHLO versions, "
            "devices and their memory, the folder of compiled programs, and the versions of torch and torchtpu."
        ),
        epilog=(
            "TORCHTPU_PLUGIN=/path/to/plugin.so chooses a plugin; TORCHTPU_PLATFORM=tpu|cpu|cuda chooses among those "
            "installed; TORCHTPU_NUM_DEVICES=n sets how many devices the CPU plugin shows."
        ),
    )
    info.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    explain.add_to(commands)
    cache.add_to(commands)
    kernels.add_to(commands)
    preflight.add_to(commands)
    options = parser.parse_args(arguments)
    match options.command:
        case "cache":
            return cache.run(options)
        case "explain":
            return explain.run(options)
        case "kernels":
            return kernels.run(options)
        case "preflight":
            return preflight.run(options)
    return _info(as_json=options.json)


def _info(as_json: bool) -> int:
    facts: dict[str, Any] = {
        "torchtpu": torchtpu.__version__,
        "torch": torch.__version__,
        "built_for_torch": _C.torch_version(),
        "python": platform.python_version(),
        "cache_folder": _cache_folder(),
    }
    status = 0
    try:
        facts.update(_C.platform_info())
        facts["memory"] = [
            {"device": f"tpu:{index}", "free": free, "total": total}
            for index in range(torchtpu.tpu.device_count())
            for free, total in [torchtpu.tpu.mem_get_info(index)]
        ]
    except RuntimeError as error:
        facts["error"] = str(error)
        status = 1
    if as_json:
        print(json.dumps(facts, indent=2, default=str))
    else:
        width = max(len(name) for name in facts)
        for name, value in facts.items():
            for position, line in enumerate(_lines(name, value)):
                print(f"{(name if position == 0 else ''):<{width}}  {line}")
    return status


def _cache_folder() -> str:
    try:
        return str(_C.cache_folder()[0])
    except RuntimeError as error:
        return f"none: {error}"


def _lines(name: str, value: Any) -> list[str]:
    if name == "memory":
        return [f"{each['device']}: {_gib(each['free'])} free of {_gib(each['total'])}" for each in value] or ["none"]
    if name.endswith("version") and isinstance(value, list | tuple):
        return [".".join(str(part) for part in value)]
    if name == "devices":
        return [
            f"{each['name']} ({each['kind']})" if isinstance(each, dict) and "kind" in each else str(each)
            for each in value
        ] or ["none"]
    if isinstance(value, list | tuple):
        return [str(each) for each in value] or ["none"]
    return str(value).splitlines() or [""]


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


if __name__ == "__main__":
    sys.exit(main())
