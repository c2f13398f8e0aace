"""The compiler's effort: little at first, full effort once programs are used much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import run_python

# Runs two programs of 128 KiB. Prints the results that differ from the previous one, by the number of the run.
RUNS = """
import hashlib, json, torch
torch.tpu.set_eager_mode("strict")
torch.manual_seed(0)
x = torch.randn(128, 128).to("tpu")
torch.tpu.synchronize()
torch.tpu.reset_cache_stats()
digests, last = {}, None
for run in range(300):
    result = torch.nn.functional.layer_norm(x, (128,))
    if run % 10 == 0 or run > 250:
        digest = hashlib.md5(result.cpu().numpy().tobytes()).hexdigest()
        if digest != last:
            digests[run], last = digest, digest
    result = torch.softmax(x, 1)
torch.testing.assert_close(result.cpu(), torch.softmax(x.cpu(), 1))
print(json.dumps({"digests": digests, **torch.tpu.cache_stats()}))
"""


def run(folder: Path, **environment: str) -> dict[str, Any]:
    finished = run_python(RUNS, **{"TORCHTPU_CACHE_DIR": str(folder), "TORCHTPU_COMPILE": "", **environment})
    assert (finished.returncode, finished.stderr) == (0, "")
    return json.loads(finished.stdout)


def test_what_is_used_much_is_compiled_again(tmp_path: Path) -> None:
    first = run(tmp_path / "one", XLA_FLAGS="")
    assert first["improved"] == 2
    assert first["compiles"] == first["requests"] - first["hits"]
    again = run(tmp_path / "two", XLA_FLAGS="")
    assert again["digests"] == first["digests"], "which executable runs follows from the number of the run"
    warm = run(tmp_path / "one", XLA_FLAGS="")
    assert (warm["compiles"], warm["improved"]) == (0, 2)
    assert warm["digests"] == first["digests"]


@pytest.mark.parametrize("environment", [{"TORCHTPU_COMPILE": "wait", "XLA_FLAGS": ""}, {}])
def test_full_effort_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    """With our variable, and if XLA's flags say how programs are compiled, as in tests."""
    if not environment:
        environment = {"XLA_FLAGS": "--xla_backend_optimization_level=1"}
    answer = run(tmp_path, **environment)
    assert answer["improved"] == 0
    assert len(answer["digests"]) == 1, "one program, one result"


# Runs a program of several operators until a better executable has taken over. Prints which runs were quick.
CHAIN = """
import json, torch
torch.tpu.set_eager_mode("fused")
torch.manual_seed(0)
cpu = torch.randn(64, 64)
x = cpu.to("tpu")
torch.tpu.synchronize()
torch.tpu.reset_cache_stats()
quick, results = [], []
for run in range(100_000):
    with torch.tpu.explain() as explanation:
        results.append(torch.layer_norm(torch.softmax(x @ x, 1), (64,)).sum(1).cpu())
    quick.append(explanation.runs[-1]["quick"])
    if not quick[-1]:
        break
expected = torch.layer_norm(torch.softmax(cpu @ cpu, 1), (64,)).sum(1)
for result in (results[0], results[-1]):
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
print(json.dumps({"quick": sum(quick), "runs": len(quick), **torch.tpu.cache_stats()}))
"""


def run_chain(folder: Path, **environment: str) -> dict[str, Any]:
    finished = run_python(
        CHAIN, TORCHTPU_CACHE_DIR=str(folder), **{"XLA_FLAGS": "", "TORCHTPU_COMPILE": "quick", **environment}
    )
    assert (finished.returncode, finished.stderr) == (0, "")
    return json.loads(finished.stdout)


def test_several_operators_run_quick_code_until_better_code_is_ready(tmp_path: Path) -> None:
    first = run_chain(tmp_path)
    assert (first["compiles"], first["improved"]) == (1, 1)
    assert first["quick"] == first["runs"] - 1 >= 4, "the fourth run starts to compile the better code"
    warm = run_chain(tmp_path)
    assert (warm["compiles"], warm["disk_hits"], warm["improved"]) == (0, 1, 0)
    assert (warm["quick"], warm["runs"]) == (0, 1), "the better code is on disk"


@pytest.mark.parametrize(
    "environment",
    [{"TORCHTPU_COMPILE": ""}, {"TORCHTPU_COMPILE": "wait"}, {"XLA_FLAGS": "--xla_backend_optimization_level=1"}],
)
def test_several_operators_wait_for_full_effort(tmp_path: Path, environment: dict[str, str]) -> None:
    answer = run_chain(tmp_path, **environment)
    assert (answer["compiles"], answer["improved"], answer["quick"]) == (1, 0, 0)


# Each run writes its argument in place, so it takes the argument's memory. Prints the number of runs of each step.
IN_PLACE = """
import json, torch
torch.tpu.set_eager_mode("fused")
torch.manual_seed(0)
expected, factor = torch.randn(64, 64), torch.randn(64, 64)
x, weight = expected.to("tpu"), factor.to("tpu")
runs, quick, held = [], [], []
for step in range(100_000):
    with torch.tpu.explain() as explanation:
        x.mul_(0.5).add_(torch.tanh(x @ weight))
        torch.tpu.synchronize()
    expected.mul_(0.5).add_(torch.tanh(expected @ factor))
    runs.append(len(explanation.runs))
    quick.append(explanation.runs[-1]["quick"])
    held.append(torch.tpu.memory_allocated())
    torch.testing.assert_close(x.cpu(), expected, rtol=1e-3, atol=1e-3)
    x.copy_(expected)
    torch.tpu.synchronize()
    if not quick[-1]:
        break
print(json.dumps({"runs": sorted(set(runs)), "quick": sum(quick), "steps": len(quick), "held": sorted(set(held[1:]))}))
"""


def test_better_code_takes_over_memory_that_is_given_away(tmp_path: Path) -> None:
    environment = {"XLA_FLAGS": "", "TORCHTPU_COMPILE": "quick", "TORCHTPU_CACHE_DIR": str(tmp_path)}
    finished = run_python(IN_PLACE, **environment)
    assert (finished.returncode, finished.stderr) == (0, "")
    answer = json.loads(finished.stdout)
    assert answer["quick"] == answer["steps"] - 1 >= 4
    assert answer["runs"] == [1], "each step ran once"
    assert len(answer["held"]) == 1, "no step keeps memory"


# Without limits the compiler computes each value again for each use: 60 steps took minutes.
SIMULATION = """
import torch

def lorenz(state):
    x, y, z = state.unbind(-1)
    for _ in range(60):
        x, y, z = x + 0.1 * (y - x), y + 0.01 * (x * (28 - z) - y), z + 0.01 * (x * y - 2.7 * z)
    return torch.stack([x, y, z], -1)

torch.manual_seed(0)
start = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
expected = lorenz(start)
expected.sum().backward()
for simulate in (lorenz, torch.compile(lorenz)):
    with torch.tpu.set_eager_mode("fused"):
        on_device = start.detach().to("tpu").requires_grad_()
        end = simulate(on_device)
        end.sum().backward()
        torch.testing.assert_close(end.cpu(), expected)
        torch.testing.assert_close(on_device.grad.cpu(), start.grad)
"""


@pytest.mark.timeout(100)
def test_the_compiler_repeats_no_work_of_loops(tmp_path: Path) -> None:
    finished = run_python(SIMULATION, TORCHTPU_CACHE_DIR=str(tmp_path), TORCHTPU_COMPILE="wait")
    assert (finished.returncode, finished.stderr) == (0, "")
