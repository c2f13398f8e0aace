"""DDP, FSDP, tensor parallel, pipelines and checkpoints on two ranks, and what needs a mesh on four."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import check_cases


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_training_on_two_ranks(mode: str) -> None:
    check_cases("training", mode)


# Two ranks run both modes in `make test`. On four, Fused finds what Strict does, and more.
@pytest.mark.parametrize("mode", [pytest.param("strict", marks=pytest.mark.slow), "fused"])
def test_training_on_a_mesh_of_four_ranks(mode: str) -> None:
    check_cases("parallel", mode, ranks=4)


@pytest.mark.slow
@pytest.mark.parametrize("ranks", [4, 8])
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_training_on_more_ranks(mode: str, ranks: int) -> None:
    check_cases("training", mode, ranks)
