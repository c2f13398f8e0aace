"""`python -m torchtpu kernels`: checks the kernels of a file with a TPU's compiler, without a TPU."""

from __future__ import annotations

import argparse
import contextlib
import runpy
import sys
from pathlib import Path
from typing import Any


def add_to(commands: Any) -> None:
    """Adds the command to the parser of `python -m torchtpu`."""
    kernels = commands.add_parser("kernels", help="compile kernels for TPUs that are not there")
    actions = kernels.add_subparsers(dest="action", required=True, metavar="action")
    check = actions.add_parser(
        "check",
        help="compile a file's kernels for chips, and say what is wrong with which",
        description=(
            "Runs a Python file, and compiles each kernel with the arguments that its `example(...)` names, by libtpu, "
            "which needs no TPU. For each refusal it names the kernel, the blocks and the cause."
        ),
    )
    check.add_argument("file", type=Path, metavar="FILE")
    check.add_argument("--chip", default="v6e", help="v5e, v6e, tpu7x and others, separated by commas")
    check.add_argument("--seconds", type=float, default=120.0, help="how long one compile may take")
    check.add_argument("--gradient", action="store_true", help="the kernels' gradients too")


def examples_of(file: Path) -> list[Any]:
    """Runs a file, and returns the examples that it registers: kernels with arguments."""
    import torchtpu.pallas as pallas

    pallas.examples.clear()
    runpy.run_path(str(file), run_name="__kernels__")
    return list(pallas.examples)


def run(options: argparse.Namespace) -> int:
    """Runs the command; returns the exit status."""
    from torchtpu.kernels.check import Compiler, KernelError

    found = examples_of(options.file)
    if not found:
        print(f"{options.file} names no example: kernel.example(torch.empty(8, 128, device='meta'))", file=sys.stderr)
        return 1
    status = 0
    with Compiler() as compiler:
        for kernel, args, kwargs in found:
            for chip in options.chip.split(","):
                try:
                    reports = kernel._checked(compiler, chip, args, kwargs, options.gradient, options.seconds)
                except (KernelError, ValueError) as error:
                    print(f"refused: {error}")
                    status = 1
                else:
                    for report in reports:
                        print(f"ok: {report}")
    return status


def write_programs(file: Path, folder: Path) -> None:
    """Writes the programs for a TPU of a file's examples, one program for each call.

    Runs in a separate process with TORCHTPU_TARGET=tpu. The open plugin is not a TPU's, so the programs do not run.
    """
    from torchtpu import _C
    from torchtpu.tpu import set_eager_mode

    examples = examples_of(file)
    _C.dump_programs(str(folder))
    for kernel, args, kwargs in examples:
        placed = [_placed(each) for each in args]
        with contextlib.suppress(RuntimeError), set_eager_mode("debug"):
            kernel(*placed, **kwargs)
    _C.dump_programs(None)


def _placed(value: Any) -> Any:
    import torch

    if isinstance(value, list | tuple):
        return type(value)(map(_placed, value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        dtype = value.dtype if isinstance(value.dtype, torch.dtype) else getattr(torch, str(value.dtype))
        return torch.empty(tuple(value.shape), dtype=dtype, device="tpu")
    return value
