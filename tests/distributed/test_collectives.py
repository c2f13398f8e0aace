"""Collectives on two ranks, in each mode, and on three."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.launch import check_cases


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_collectives_of_two_ranks(mode: str, tmp_path: Path) -> None:
    check_cases("collectives", mode, tmp_path)


def test_collectives_of_three_ranks(tmp_path: Path) -> None:
    check_cases("collectives", "fused", tmp_path, ranks=3)
