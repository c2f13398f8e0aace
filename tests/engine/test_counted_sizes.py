"""Sizes that the data decide, beside sizes that change: their operators have one program for all sizes."""

from __future__ import annotations

import pytest

from tests.engine import counts
from tests.helpers import check_module


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("name", [*counts.COUNTS, "first", "rows"])
def test_counts(name: str, mode: str) -> None:
    check_module("tests.engine.counts", name, mode)
