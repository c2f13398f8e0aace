"""While the program of a chunk is compiled, a host that waits runs programs that exist."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.helpers import check_python

# Prints what is measured as JSON. `reasons` are those of runs whose reason is that another program is compiled.
PRELUDE = """
import copy, json, torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)

def reasons(explanation):
    return sum("while the one that takes its place is compiled" in run["reason"] for run in explanation.runs)

def close(tpu, cpu):
    torch.testing.assert_close(tpu.detach().cpu(), cpu.detach(), rtol=1e-3, atol=1e-4)
"""

# Operators that have run in Strict, with parameters that are written and memory that is donated.
ALONE = """
def make():
    torch.manual_seed(0)
    return nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())])

cpu, tpu = make(), make().to("tpu")
optimizers = [torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9) for model in (cpu, tpu)]

def step(model, optimizer, device):
    x = torch.linspace(-1, 1, 32 * 64).reshape(32, 64).to(device)
    optimizer.zero_grad()
    loss = (model(x) - x).square().mean()
    loss.backward()
    optimizer.step()
    return loss

def both():
    step(cpu, optimizers[0], "cpu")
    return step(tpu, optimizers[1], "tpu").item()

torch.tpu.set_eager_mode("strict")
for _ in range(3):
    both()
torch.tpu.set_eager_mode("fused")
with torch.tpu.explain() as first:
    both()
torch.tpu.cache_stats()  # waits for compilers
with torch.tpu.explain() as second:
    both()
for one, other in zip(tpu.parameters(), cpu.parameters()):
    close(one, other)
print(json.dumps({"first": [len(first.runs), reasons(first)], "second": [len(second.runs), reasons(second)],
                  "compiled": len(first.compiles)}))
"""

# The same operators with fewer results in use.
WIDER = """
torch.tpu.set_eager_mode("fused")
x = torch.linspace(-1, 1, 64 * 64).reshape(64, 64)

def run(x, keeps):
    kept = []
    for i in range(12):
        x = (x @ x / 64).sin() + x / (1 + i)
        kept.append(x)
    return kept if keeps else kept[-1:]

given = x.to("tpu")
torch.tpu.synchronize()
results = run(given, True)
results[-1].cpu()
torch.tpu.cache_stats()  # waits for compilers
del results
with torch.tpu.explain() as first:
    results = run(given, False)
    close(results[-1], run(x, False)[-1])
torch.tpu.cache_stats()
with torch.tpu.explain() as second:
    results = run(given, False)
    close(results[-1], run(x, False)[-1])
print(json.dumps({"first": [len(first.runs), reasons(first)], "second": [len(second.runs), reasons(second)],
                  "compiled": len(first.compiles)}))
"""

# Few operators, many times: nothing has run before.
REPEATED = """
torch.tpu.set_eager_mode("fused")

def solve(device):
    x = torch.linspace(-1, 1, 64).to(device)
    for _ in range(200):
        x = x + torch.sin(x) * 0.01
    return x

with torch.tpu.explain() as first:
    close(solve("tpu"), solve("cpu"))
torch.tpu.cache_stats()
with torch.tpu.explain() as second:
    close(solve("tpu"), solve("cpu"))
print(json.dumps({"first": [len(first.runs), reasons(first)], "second": [len(second.runs), reasons(second)],
                  "compiled": len(first.compiles)}))
"""

# Chunks that come once, of operators that other chunks have too; then one of them again and again.
ONCE = """
import itertools
torch.tpu.set_eager_mode("fused")
operators = [torch.sin, torch.cos, torch.tanh, torch.abs, torch.neg]

def alone(explanation):
    return sum("operators run by themselves" in run["reason"] for run in explanation.runs)

def both(combination):
    results = []
    for device in ("tpu", "cpu"):
        x = given[device]
        for operator in combination:
            x = operator(x)
        results.append(x)
    close(*results)

given = {device: torch.linspace(-1, 1, 64).to(device) for device in ("tpu", "cpu")}
combinations = list(itertools.product(operators, repeat=3))
with torch.tpu.explain() as first:
    for combination in combinations:
        both(combination)
with torch.tpu.explain() as second:
    for _ in range(70):
        both(combinations[-1])
torch.tpu.cache_stats()
with torch.tpu.explain() as third:
    both(combinations[-1])
print(json.dumps({"combinations": len(combinations), "alone": [alone(each) for each in (first, second, third)],
                  "compiled": [len(each.compiles) for each in (first, second, third)], "last": len(third.runs)}))
"""

# After chunks that come once: chunks that the beat ends, of operators that other chunks have too.
BEATS = """
import itertools
torch.tpu.set_eager_mode("fused")
for length in range(2, 42):
    close(torch.ones(length, 3, device="tpu").mul(2).sum(), torch.ones(length, 3).mul(2).sum())

operators = [torch.sin, torch.cos, torch.tanh, torch.abs]

def run(device):
    x = torch.linspace(-1, 1, 64).to(device)
    for combination in itertools.product(operators, repeat=3):
        x = x.neg()
        for operator in combination * 22:
            x = operator(x)
    return x

with torch.tpu.explain() as explanation:
    close(run("tpu"), run("cpu"))
torch.tpu.cache_stats()
beats = [run for run in explanation.runs if "came back" in run["reason"]]
print(json.dumps({"runs": len(explanation.runs), "compiled": len(explanation.compiles), "beats": len(beats)}))
"""

# After chunks that come once: one with much data, twice.
MUCH = """
torch.tpu.set_eager_mode("fused")
for length in range(2, 42):
    close(torch.ones(length, 3, device="tpu").mul(2).sum(), torch.ones(length, 3).mul(2).sum())

def run(device):
    x = torch.linspace(-1, 1, 4 << 20).to(device)
    for _ in range(4):
        x = (x + 1).sin()
    return x.sum()

found = []
for _ in range(3):
    with torch.tpu.explain() as explanation:
        close(run("tpu"), run("cpu"))
    torch.tpu.cache_stats()
    found.append([len(explanation.runs), len(explanation.compiles)])
print(json.dumps(found))
"""

# After chunks that come once: a function of each row, whose calls are many and whose operators are few.
ROWS = """
torch.tpu.set_eager_mode("fused")
for length in range(2, 42):
    close(torch.ones(length, 3, device="tpu").mul(2).sum(), torch.ones(length, 3).mul(2).sum())

torch.manual_seed(0)
rows = torch.rand(300, 5)
with torch.tpu.explain() as explanation:
    for function in (torch.sin, torch.exp):
        close(torch.stack([function(row) for row in rows.to("tpu")]), function(rows))
torch.tpu.cache_stats()
reasons = [run["reason"] for run in explanation.runs if "operators run by themselves" not in run["reason"]]
print(json.dumps({"runs": len(explanation.runs), "compiled": len(explanation.compiles), "others": reasons}))
"""


def measure(program: str, **environment: str) -> dict[str, Any]:
    settings = {"XLA_FLAGS": "", "TORCHTPU_COMPILE": "", "TORCHTPU_CACHE": "0", **environment}
    return json.loads(check_python(PRELUDE + program, **settings))


@pytest.mark.parametrize("program", [ALONE, WIDER], ids=["alone", "wider"])
def test_programs_that_exist_run_meanwhile(program: str) -> None:
    found = measure(program)
    runs, meanwhile = found["first"]
    assert meanwhile > 0
    if program is ALONE:
        assert meanwhile > 50, "each operator runs by its own program"
    else:
        assert (runs, meanwhile) == (1, 1)
    assert found["compiled"] >= 1
    assert found["second"][1] == 0, "the new program has taken over"
    assert found["second"][0] < 10


def test_few_operators_many_times_run_at_once() -> None:
    found = measure(REPEATED)
    assert found["first"][1] > 50, "each operator runs by its own program"
    assert 2 < found["compiled"] < 8
    assert found["second"][1] == 0, "the new program has taken over"


@pytest.mark.parametrize("program", [ALONE, WIDER], ids=["alone", "wider"])
def test_the_host_waits_if_asked_to(program: str) -> None:
    found = measure(program, TORCHTPU_COMPILE="wait")
    assert (found["first"][1], found["second"][1]) == (0, 0)


def test_chunks_that_come_once_share_programs() -> None:
    found = measure(ONCE)
    first, second, third = found["alone"]
    assert first > 3 * 80, "a new chunk runs operator by operator"
    assert found["compiled"][0] < 45
    assert (second, found["compiled"][1]) == (62 * 3, 1), "a chunk that comes back often gets a program"
    assert (third, found["compiled"][2], found["last"]) == (0, 0, 1)


def test_chunks_that_come_once_are_compiled_if_asked_to() -> None:
    found = measure(ONCE, TORCHTPU_COMPILE="wait")
    assert found["alone"] == [0, 0, 0]
    assert found["compiled"][0] >= found["combinations"]


def test_many_calls_of_few_operators_that_come_once_share_programs() -> None:
    found = measure(ROWS)
    assert found["runs"] > 2 * 300
    assert found["compiled"] < 20
    assert len(found["others"]) < 10, "no program of hundreds of operators is compiled"


def test_chunks_that_the_beat_ends_share_programs() -> None:
    found = measure(BEATS)
    assert found["runs"] > 64 * 60, "operators run by themselves"
    assert (found["beats"], found["compiled"] < 10) == (0, True)


def test_much_data_is_worth_a_program() -> None:
    first, second, third = measure(MUCH)
    assert first[0] > 6, "operators run by themselves"
    assert second[1] == 1
    assert third == [1, 0]
