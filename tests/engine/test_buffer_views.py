"""Views of a buffer of bytes beside sizes that change: the programs take the sizes as inputs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.engine import buffers


@pytest.mark.parametrize("name", [*buffers.BUFFERS, "triangles"])
def test_views_of_a_buffer(name: str) -> None:
    subprocess.run([sys.executable, "-m", "tests.engine.buffers", name], check=True)
