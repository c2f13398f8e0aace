"""Judges a case by a TPU's compiler, which needs no TPU: whether libtpu compiles each program of the case.

The device of this machine runs the case, with its programs written for a TPU (`TORCHTPU_TARGET=tpu`). Their
results are not checked here.
"""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

import torch
from torchtpu import _C

from tests.conformance.places import DEVICE, Trial

# The modes of cases that are compiled and not compared, and the chip of each.
TOPOLOGIES = {"v5e": "v5e:1x1", "v6e": "v6e:1x1"}
DIRECTIONS = ("forward", "backward", "step")
# The number of inputs of each case.
INPUTS = 2


class RefusedError(Exception):
    """libtpu does not compile a program."""


class NothingToCompileError(Exception):
    """The case fails before there is a program, which other modes judge."""


def write_for_tpus() -> None:
    """Makes this process, and those that it starts, write programs for a TPU. Called before the device is opened."""
    os.environ["TORCHTPU_TARGET"] = "tpu"
    os.environ.setdefault("TPU_LOG_DIR", "disabled")


def judge(trial: Trial, mode: str) -> None:
    """Compiles the programs of a trial. Raises if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        _C.dump_programs(folder)
        failure = None
        try:
            # An unreferenced result is not computed.
            with torch.tpu.set_eager_mode("fused"):
                result = trial.program(DEVICE)
                torch.tpu.synchronize()
            del result
        except Exception as error:
            failure = error
        finally:
            _C.dump_programs(None)
        programs = [path.read_text() for path in sorted(Path(folder).iterdir())]
    for program in programs:
        operators, _, text = program.partition("\n")
        if reason := _refusal(text, TOPOLOGIES[mode]):
            raise RefusedError(f"{operators.removeprefix('// ')}: {reason}")
    if failure is not None and "TPUs have no" in str(failure):
        raise failure
    if failure is not None and not programs:
        raise NothingToCompileError from failure


@functools.lru_cache(maxsize=1000)
def _refusal(program: str, topology: str) -> str | None:
    """libtpu's error for a program. Cached, because many trials share programs."""
    try:
        _C.compile_ahead(program, topology)
    except RuntimeError as error:
        return str(error)
    return None
