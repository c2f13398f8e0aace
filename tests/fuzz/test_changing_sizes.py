"""Random programs whose sizes change give the same on the device as on the CPU, in all modes. The host pads with NaN.

TORCHTPU_TEST_SEED draws other programs. TORCHTPU_PROPERTY_PROGRAMS sets their number, TORCHTPU_PROPERTY_SEED the first
seed. `make fuzz` runs many.
"""

from __future__ import annotations

import os

import pytest
import torch

from tests.fuzz.changing_sizes import program
from tests.fuzz.test_property import compare_steps
from tests.settings import SEED

pytestmark = pytest.mark.usefixtures("changing_sizes")

PROGRAMS = int(os.environ.get("TORCHTPU_PROPERTY_PROGRAMS", "8"))
FIRST_SEED = int(os.environ.get("TORCHTPU_PROPERTY_SEED", SEED * 100))
SHARDS = 4  # for as many workers


@pytest.mark.parametrize("shard", range(SHARDS))
def test_random_programs_at_changing_sizes(shard: int, device: torch.device) -> None:
    read = torch.tpu.op_stats()["unpadded"]
    for seed in range(FIRST_SEED + shard, FIRST_SEED + PROGRAMS, SHARDS):
        compare_steps(program(seed), seed, device.type)
    if PROGRAMS >= SHARDS:
        assert torch.tpu.op_stats()["unpadded"] > read, "no value had padding"
