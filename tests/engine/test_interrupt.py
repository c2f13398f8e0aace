"""Ctrl-C while a program is being compiled."""

from __future__ import annotations

import pytest

from tests.helpers import start_python

# The program takes XLA minutes.
INTERRUPTED = """
import os, signal, threading, time, torch
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it
x = torch.ones(8, 8, device="tpu")
x.cpu()

@torch.tpu.compile_step
def step(x):
    results = [x]
    for _ in range(400):
        results.append(results[-1] * 1.01 + 0.5)
    return results

results = step(x)
start = time.perf_counter()
try:
    threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
    {wait}
except KeyboardInterrupt:
    print(time.perf_counter() - start, (x + 1).shape)
os._exit(0)  # not waiting for the compiler
"""


@pytest.mark.parametrize("wait", ["results[-1].cpu()", "torch.tpu.synchronize()", "results[-1].sum().item()"])
def test_a_wait_for_the_compiler_ends(wait: str) -> None:
    finished = start_python(INTERRUPTED.replace("{wait}", wait), XLA_FLAGS="", TORCHTPU_CACHE="0")
    assert finished.returncode == 0, finished.stderr
    seconds, shape = finished.stdout.split(maxsplit=1)
    assert float(seconds) < 60
    assert shape == "torch.Size([8, 8])\n"
