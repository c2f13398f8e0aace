"""Sizes that the data decide, beside sizes that change: their operators have one program for all sizes."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.engine import counts


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("name", counts.COUNTS)
def test_counts(name: str, mode: str) -> None:
    subprocess.run([sys.executable, "-m", "tests.engine.counts", name, mode], check=True)
