"""Views of a buffer of bytes beside sizes that change: the programs take the sizes as inputs."""

from __future__ import annotations

import pytest

from tests.engine import buffers
from tests.helpers import check_module


@pytest.mark.parametrize("name", [*buffers.BUFFERS, "triangles"])
def test_views_of_a_buffer(name: str) -> None:
    check_module("tests.engine.buffers", name)
