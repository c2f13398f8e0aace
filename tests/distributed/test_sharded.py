"""FSDP2 on four ranks: what each holds; and all together compile what one does."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.ranks import values_on_ranks
from tests.distributed.sharded import LAYER_BYTES, LAYERS


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_step_of_four_ranks(mode: str, tmp_path: Path) -> None:
    ranks = values_on_ranks(4, "tests.distributed.sharded", "train", mode, 8, TORCHTPU_CACHE_DIR=str(tmp_path))
    # A quarter of parameters, gradients and two moments; two layers' parameters are gathered; and FSDP2 holds whole
    # gradients of two layers: those of one, and those that it reduces of the layer before. Where these are there, some
    # of the sharded gradients are not: 11.5 layers, with PyTorch's CPU backend too.
    (expected,) = values_on_ranks(1, "tests.distributed.sharded", "peak_of_pytorch", 4)
    assert expected < (4 * LAYERS / 4 + 2 + 2) * LAYER_BYTES
    for each in ranks:
        assert each["peak"] <= 1.01 * expected
        # Nothing is compiled after the fifth step, nor read from disk.
        assert each["programs"][5:] == [0, 0, 0]
    needed = max(sum(each["programs"]) for each in ranks)
    assert sum(sum(each["compiled"]) for each in ranks) <= 1.05 * needed
