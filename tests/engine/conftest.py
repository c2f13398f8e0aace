"""Fixtures of several files of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine.cache_folders import train


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A cache folder after a training, and the output of that training. Must not be changed."""
    folder = tmp_path_factory.mktemp("warm")
    answer, errors = train(folder)
    assert errors == ""
    return folder, answer
