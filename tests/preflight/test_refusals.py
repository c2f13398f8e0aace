"""Scripts that a TPU's real compiler refuses, and compilers that die or hang in the middle of a preflight."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.preflight.recorded import SCRIPT, needs_libtpu

# The kernel asks for all of an array at once, of 64 MB.
KERNEL = """
import torch
import torchtpu.pallas
from jax.experimental import pallas as pl


def twice(x, result):
    result[...] = x[...] * 2


double = torchtpu.pallas.custom_jax_kernel(lambda x: pl.pallas_call(twice, out_shape=x)(x), name="double")
model = torch.nn.Linear(4096, 4096).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(9):
    loss = model(double(torch.randn(4096, 4096).to("tpu"))).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"""


def preflight(script: Path, *options: str) -> list[str]:
    out = script.parent / "out.json"
    return [
        sys.executable,
        "-m",
        "torchtpu",
        "preflight",
        "--no-suggestions",
        "--json",
        str(out),
        *options,
        str(script),
    ]


@needs_libtpu
def test_a_kernel_that_the_compiler_refuses(tmp_path: Path) -> None:
    """It asks for too much of the fast memory: that is no verdict on the device's memory."""
    pytest.importorskip("jax")
    script = tmp_path / "train.py"
    script.write_text(KERNEL)
    finished = subprocess.run(preflight(script, "--deep"), capture_output=True, text=True, timeout=400)
    found = json.loads((tmp_path / "out.json").read_text())
    assert finished.returncode == 1, finished.stderr
    call = next(number for number, line in enumerate(KERNEL.split("\n"), 1) if "model(double" in line)
    sentence = (
        f"the compiler refuses the program: torchtpu::kernel ({script}:{call}): a kernel asks for 128.00M of VMEM, "
        "and there are 16.00M: make the blocks smaller, or raise vmem_limit_bytes in its compiler_params"
    )
    assert set(found["problems"]) == {sentence}
    assert f"  not judged: {sentence}" in finished.stdout.splitlines()
    # Memory was assigned before.
    assert (found["fits"], found["steps"], found["failure"]) == (True, 3, None)
    assert found["bytes"]["parameters"] >= 4096**2 * 4
    assert [each["reads"] for each in found["assumed"]] == [3]


def compilers_of(parent: int) -> list[int]:
    """The processes of a preflight's compilers, by number."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        # A process may end meanwhile.
        with contextlib.suppress(OSError):
            status = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) == parent and b"examine_ahead" in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
    return found


@needs_libtpu
@pytest.mark.parametrize(
    ("number", "options", "words"),
    [
        (signal.SIGKILL, (), "the compiler died of signal 9"),
        (signal.SIGSTOP, ("--time-limit", "40"), "the compiler did not answer within 40 s; --time-limit gives it more"),
    ],
)
def test_a_compiler_that_is_stopped(
    number: signal.Signals, options: tuple[str, ...], words: str, tmp_path: Path
) -> None:
    """Each process of the compiler gets a signal as soon as it begins."""
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    process = subprocess.Popen(preflight(script, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 240
        while process.poll() is None and time.monotonic() < deadline:
            for compiler in compilers_of(process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(compiler, number)
            time.sleep(0.05)
        assert compilers_of(process.pid) == []
    finally:
        process.kill()
    stdout, stderr = process.communicate()
    found: dict[str, Any] = json.loads((tmp_path / "out.json").read_text())
    assert process.returncode == 1, stderr
    assert found["problems"]
    assert all(problem.startswith(words) for problem in found["problems"]), found["problems"]
    assert any(line.startswith(f"  not judged: {words}") for line in stdout.splitlines())
    assert (found["fits"], found["bytes"]["total"], found["steps"], found["failure"]) == (None, None, 3, None)
    assert sum(each["reads"] for each in found["assumed"]) >= 3
