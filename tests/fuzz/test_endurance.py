"""Thousands of steps, with the allocators that people preload."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STEPS = 3000
LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
# Debian's packages libjemalloc2 and libtcmalloc-minimal4.
ALLOCATORS = {
    "libc": "",
    "jemalloc": str(LIBRARIES / "libjemalloc.so.2"),
    "tcmalloc": str(LIBRARIES / "libtcmalloc_minimal.so.4"),
}

# argv: mode, steps. Prints the growth of the process in MiB, and of what the device holds, over the second half.
TRAIN = """
import resource, sys, torch
from torch import nn
mode, steps = sys.argv[1], int(sys.argv[2])
torch.tpu.eager_mode = mode
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4)).to("tpu")
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

def held():
    torch.tpu.synchronize()
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * resource.getpagesize() >> 20, torch.tpu.memory_allocated()

for step in range(steps):
    x, y = torch.randn(24, 16).to("tpu"), torch.randint(4, (24,)).to("tpu")
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    if step % 10 == 0:
        assert loss.item() < 10
    if step == steps // 2:
        before = held()
after = held()
print(after[0] - before[0], after[1] - before[1])
"""


@pytest.mark.nightly
@pytest.mark.timeout(600)
@pytest.mark.parametrize("allocator", ALLOCATORS)
@pytest.mark.parametrize("way", ["strict", "fused"])
def test_memory_is_flat(way: str, allocator: str) -> None:
    library = ALLOCATORS[allocator]
    if library and not Path(library).exists():
        pytest.skip(f"{library} is not installed")
    arguments = [sys.executable, "-c", TRAIN, way, str(STEPS)]
    finished = subprocess.run(arguments, capture_output=True, text=True, env={**os.environ, "LD_PRELOAD": library})
    assert finished.returncode == 0, finished.stderr
    grown, held = map(int, finished.stdout.split())
    assert held == 0
    assert grown < 16
