"""Ranks that take different branches between collectives of overlapping groups, in Fused: no hang, and right values."""

from __future__ import annotations

import os

import pytest

from tests.distributed.ranks import values_on_ranks
from tests.settings import SEED

STEPS = int(os.environ.get("TORCHTPU_DISTRIBUTED_STEPS", "100"))


@pytest.mark.parametrize("delays", [False, True])
def test_ranks_diverge(delays: bool) -> None:
    seed = 2 * SEED + delays  # an odd seed delays ranks
    assert min(values_on_ranks(3, "tests.distributed.diverging", "steps", seed, STEPS)) > 0
