"""The largest batch that fits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torchtpu.preflight.batches import TRIALS, expected, search

from tests.preflight.recorded import needs_libtpu


def line(batch: int) -> int:
    """What grows evenly, beside parameters."""
    return 700 + 30 * batch


def steps(batch: int) -> int:
    """What is padded to eight examples."""
    return 700 + 240 * -(-batch // 8)


def square(batch: int) -> int:
    return 700 + batch * batch


@pytest.mark.parametrize("taken", [line, steps, square])
@pytest.mark.parametrize("limit", [701, 1000, 1003, 5000, 10**5])
@pytest.mark.parametrize("now", [1, 16, 1000])
@pytest.mark.parametrize("factor", [1, 2])
def test_the_search_finds_the_largest(taken: Callable[[int], int], limit: int, now: int, factor: int) -> None:
    """Also from a batch whose bytes are known."""
    tried: dict[int, int] = {}

    def measure(size: int) -> int:
        assert size not in (now, *tried)
        assert size >= 1
        tried[size] = taken(size)
        return tried[size]

    search({now: taken(now)}, factor * now, limit, measure)
    assert len(tried) <= TRIALS
    tried[now] = taken(now)
    fitting = max((size for size, found in tried.items() if found <= limit), default=0)
    refused = min(size for size, found in tried.items() if found > limit)
    largest = next(size for size in range(10**5) if taken(size + 1) > limit)
    assert fitting <= largest < refused
    if taken is not square:
        assert refused - fitting <= max(1, largest / 16)


def test_the_search_ends_where_a_batch_cannot_be_judged() -> None:
    tried = []
    search({}, 4, 100, lambda size: tried.append(size))
    assert tried == [4]


def test_what_one_recording_lets_expect() -> None:
    sizes = {"parameters": 600, "gradients": 0, "inputs": 10, "activations": 90, "temporaries": 60, "packing_loss": 40}
    # 800 bytes: 200 of them grow, or 100.
    assert expected(4, sizes, 1000) == (8, 12)
    assert expected(4, sizes, 1100) == (10, None)
    assert expected(4, sizes, 10000) == (16, None)
    assert expected(4, sizes, 800) == (4, 4)
    assert expected(4, sizes, 100) == (0, 0)
    assert expected(4, {"parameters": 600}, 1000) is None
    assert expected(0, sizes, 1000) is None


SCRIPT = """
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(16, 4096), torch.nn.Linear(4096, 4096), torch.nn.GELU()).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
data = TensorDataset(torch.zeros(1, 512, dtype=torch.int64).expand(10000, 512))
for (x,) in DataLoader(data, batch_size=16):
    model(x.to("tpu")).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@needs_libtpu
def test_batch_largest(tmp_path: Path) -> None:
    """The batch that is found fits, the next one that was tried does not, and they are near each other."""
    script, out = tmp_path / "train.py", tmp_path / "out.json"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torchtpu", "preflight", "--no-suggestions", "--batch", "largest"]
    finished = subprocess.run(
        [*command, "--json", str(out), str(script)], capture_output=True, text=True, timeout=280, check=False
    )
    assert finished.returncode == 0, finished.stderr
    found = json.loads(out.read_text())
    batch = found["largest_batch"]
    assert batch["now"] == 16
    assert batch["fits"] < batch["does_not_fit"] <= batch["fits"] * 1.05
    assert batch["expected"] == [64, None]
    taken = {row["batch"]: row for row in found["what_if"]}
    assert taken[batch["fits"]]["bytes"] <= found["limit_bytes"] < taken[batch["does_not_fit"]]["bytes"]
    assert f"the largest batch found to fit: {batch['fits']}; {batch['does_not_fit']} does not" in finished.stdout
