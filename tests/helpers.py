"""Compares a program on the device with the same program on the CPU, and runs Python in other processes."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests import forks

DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
)

Program = Callable[[torch.device], Any]


def programs_made() -> int:
    """Programs compiled, or read from the disk cache, so far. Other tests may have left some on disk."""
    stats = torch.tpu.cache_stats()
    return stats["compiles"] + stats["disk_hits"]


def assert_same(actual: Any, expected: Any) -> None:
    """Equal in type, dtype, shape, strides and values, through lists, tuples and dictionaries."""
    if isinstance(expected, torch.Tensor):
        assert isinstance(actual, torch.Tensor)
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        assert actual.stride() == expected.stride()
        assert actual.storage_offset() == expected.storage_offset()
        assert actual.requires_grad == expected.requires_grad
        torch.testing.assert_close(actual.detach().cpu(), expected.detach(), equal_nan=True)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for one, other in zip(actual, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, dict):
        assert list(actual) == list(expected)
        assert_same(list(actual.values()), list(expected.values()))
    else:
        assert type(actual) is type(expected)
        assert actual == expected


def check(program: Program, device: torch.device) -> None:
    """Runs the same program on the CPU and on the device, and compares the results."""
    assert_same(program(device), program(torch.device("cpu")))


def check_refused(program: Program, device: torch.device) -> BaseException:
    """The CPU and the device must raise the same class of exception. Returns the device's.

    The program itself must raise it on the device: nothing reads its results, so an error that is raised at a read
    is missed.
    """
    with pytest.raises(Exception) as on_cpu:  # noqa: PT011 (its class is compared)
        program(torch.device("cpu"))
    with pytest.raises(Exception) as on_device:  # noqa: PT011
        program(device)
    assert on_device.type is on_cpu.type, f"{on_device.value!r} instead of {on_cpu.value!r}"
    return on_device.value


def moved(value: Any, device: torch.device | str) -> Any:
    """The value with its tensors on a device; tuples become lists."""
    if isinstance(value, list | tuple):
        return [moved(each, device) for each in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def check_compiled(function: Callable[..., Any], device: torch.device, *inputs: Any, **options: Any) -> None:
    """The compiled function on the device has the same results and effects on inputs as the function on the CPU."""
    on_cpu, on_device = copy.deepcopy(inputs), moved(copy.deepcopy(inputs), device)
    compiled = torch.compile(function, **options)
    for _ in range(2):
        assert_same(compiled(*on_device), function(*on_cpu))
        assert_same(on_device, list(on_cpu))


# Python, the libraries and the import of torchtpu read these.
READ_AT_THE_START = ("PYTHON", "TORCH_", "OMP_", "MALLOC_", "GLIBC_", "LD_", "TORCHTPU_SIZES", "TORCHTPU_EAGER_MODE")


def run_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in another process that has not used the device."""
    if any(name.startswith(READ_AT_THE_START) for name in environment):
        return start_python(code, *arguments, **environment)
    return forks.server().run(["-c", code, *arguments], {**os.environ, **environment})


def check_module(name: str, *arguments: str, **environment: str) -> str:
    """The output of `python -m name arguments` in another process that has not used the device."""
    return _printed(forks.server().run(["-m", name, *arguments], {**os.environ, **environment}))


def start_python(code: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in another process that has not even imported torch. Takes seconds longer than `run_python`."""
    command = [sys.executable, "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, timeout=240)


def check_python(code: str, *arguments: str, **environment: str) -> str:
    """The output of the code."""
    return _printed(run_python(code, *arguments, **environment))


def check_started_python(code: str, *arguments: str, **environment: str) -> str:
    """The output of the code, in a process that has not imported torch."""
    return _printed(start_python(code, *arguments, **environment))


def _printed(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
