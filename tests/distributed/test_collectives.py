"""Collectives on two ranks, in each mode, and on three."""

from __future__ import annotations

import pytest

from tests.distributed.ranks import check_cases


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_collectives_of_two_ranks(mode: str) -> None:
    check_cases("collectives", mode)


def test_collectives_of_three_ranks() -> None:
    check_cases("collectives", "fused", ranks=3)
