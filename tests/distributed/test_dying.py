"""A rank is killed at a random moment: every other one raises, ends, and hangs nowhere. TORCHTPU_DISTRIBUTED_TRIALS
says how often. A rank that hangs has no exit status."""

from __future__ import annotations

import os

import pytest

from tests.distributed.dying import victim_of
from tests.distributed.ranks import on_ranks
from tests.settings import SEED

TRIALS = int(os.environ.get("TORCHTPU_DISTRIBUTED_TRIALS", "3"))


@pytest.mark.parametrize("seed", range(TRIALS))
def test_a_rank_is_killed(seed: int) -> None:
    seed += 1000 * SEED
    outcomes = on_ranks(3, "tests.distributed.dying", "trial", seed)
    for rank, outcome in enumerate(outcomes):
        if rank == victim_of(seed):
            assert outcome.status == -14  # SIGALRM
            continue
        assert outcome.status == 0, f"rank {rank}: {outcome}"
        assert outcome.error is None, f"rank {rank}: {outcome.error}"
        assert outcome.value["error"], f"rank {rank}: {outcome.value}"
        assert outcome.value["computed"] == 4.0
