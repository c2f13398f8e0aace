"""Comparing what a program does on the device with what it does on the CPU, and running Python in other processes."""

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


def assert_same(actual: Any, expected: Any) -> None:
    """Equal in type, dtype, shape, strides and values, all through lists, tuples and dictionaries."""
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
    """Runs the same program on the CPU and on the device; both must come to the same."""
    assert_same(program(device), program(torch.device("cpu")))


def check_refused(program: Program, device: torch.device) -> BaseException:
    """Both the CPU and the device must raise the same class of exception. The device's is returned.

    The device's must come from the program itself: nothing in it reads results, so an error that waits for them in
    some mode is missed.
    """
    with pytest.raises(Exception) as on_cpu:  # noqa: PT011 (its class is compared)
        program(torch.device("cpu"))
    with pytest.raises(Exception) as on_device:  # noqa: PT011
        program(device)
    assert on_device.type is on_cpu.type, f"{on_device.value!r} instead of {on_cpu.value!r}"
    return on_device.value


def moved(value: Any, device: torch.device | str) -> Any:
    """The value with its tensors on a device, lists and tuples as lists."""
    if isinstance(value, list | tuple):
        return [moved(each, device) for each in value]
    return value.to(device) if isinstance(value, torch.Tensor) else value


def check_compiled(function: Callable[..., Any], device: torch.device, *inputs: Any, **options: Any) -> None:
    """The compiled function does to the device's inputs, and returns, what the function does on the CPU."""
    on_cpu, on_device = copy.deepcopy(inputs), moved(copy.deepcopy(inputs), device)
    compiled = torch.compile(function, **options)
    for _ in range(2):
        assert_same(compiled(*on_device), function(*on_cpu))
        assert_same(on_device, list(on_cpu))


# Python and the libraries read these when they start.
READ_AT_THE_START = ("PYTHON", "TORCH_", "OMP_", "MALLOC_", "GLIBC_", "LD_")


def run_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, where nothing has used the device yet."""
    if any(name.startswith(READ_AT_THE_START) for name in environment):
        return start_python(code, **environment)
    return forks.server().run(["-c", code], {**os.environ, **environment})


def start_python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code in a process of its own, where not even torch is imported. Takes seconds longer than `run_python`."""
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, **environment}, timeout=240
    )


def check_python(code: str, **environment: str) -> str:
    """What the code printed."""
    return _printed(run_python(code, **environment))


def check_started_python(code: str, **environment: str) -> str:
    """What the code printed, in a process where not even torch was imported."""
    return _printed(start_python(code, **environment))


def _printed(finished: subprocess.CompletedProcess[str]) -> str:
    assert finished.returncode == 0, finished.stderr
    return finished.stdout
