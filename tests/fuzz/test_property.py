"""Random programs that mix the three modes give the same on the device as on the CPU.

TORCHTPU_TEST_SEED draws other programs. TORCHTPU_PROPERTY_PROGRAMS sets their number, TORCHTPU_PROPERTY_SEED the first
seed:

    TORCHTPU_PROPERTY_PROGRAMS=5000 make test-python PYTEST="-k random_programs"
"""

from __future__ import annotations

import os

import pytest
import torch

from tests.fuzz.program_lines import MAKERS
from tests.fuzz.program_runs import Step, as_python, first_difference, shrink
from tests.fuzz.random_programs import Generator
from tests.settings import SEED

PROGRAMS = int(os.environ.get("TORCHTPU_PROPERTY_PROGRAMS", "24"))
FIRST_SEED = int(os.environ.get("TORCHTPU_PROPERTY_SEED", SEED * 100))
SHARDS = 8  # for as many workers
LENGTH = 30
SLOW_PROGRAMS = 3000


def compare(seed: int, device: str) -> None:
    compare_steps(Generator(seed, MAKERS).program(LENGTH), seed, device)


def compare_steps(steps: list[Step], seed: int, device: str) -> None:
    """Fails with a short program if the device and the CPU differ."""
    torch.tpu.set_eager_mode("strict")
    if first_difference(steps, device) is None:
        return
    steps = shrink(steps, device)
    found = first_difference(steps, device)
    told = f"line {found[0] + 1}: {found[1]}" if found else "the shrunk program does not fail when it is run again"
    repeat = f"TORCHTPU_PROPERTY_SEED={seed} TORCHTPU_PROPERTY_PROGRAMS=1"
    pytest.fail(f"{repeat} repeats this\n{told}\n\n{as_python(steps, device)}", pytrace=False)


@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_programs(shard: int, device: torch.device) -> None:
    for seed in range(FIRST_SEED + shard, FIRST_SEED + PROGRAMS, SHARDS):
        compare(seed, device.type)


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("shard", range(SHARDS))
def test_thousands_of_random_programs(shard: int, device: torch.device) -> None:
    for seed in range(1_000_000 + shard, 1_000_000 + SLOW_PROGRAMS, SHARDS):
        compare(seed, device.type)


def test_programs_repeat() -> None:
    assert Generator(7, MAKERS).program(LENGTH) == Generator(7, MAKERS).program(LENGTH)


def test_a_difference_is_found_and_shrunk(device: torch.device) -> None:
    """The device gets one line that the CPU does not, so that a difference exists."""
    lie = Step('t1.add_(1 if device.type == "tpu" else 0)', "exact", "t1", ("t1",))
    steps = Generator(11, MAKERS).program(LENGTH)
    steps = [*steps[:1], lie, *steps[1:], Step("check(t1 + 0)", inputs=("t1",))]
    steps[0] = Step("t1 = torch.zeros(3, device=device)", target="t1")
    steps = [step for step in steps if not (step.target == "t1" and step.text.startswith("t1.")) or step is lie]
    steps = [step for step in steps if step.text != "del t1"]
    shrunk = shrink(steps, device.type)
    assert lie in shrunk
    assert len(shrunk) <= 4
    script = as_python(shrunk, "tpu")
    compile(script, "program", "exec")
    assert script.startswith("import torch")
