"""A plugin that fails at random: errors are raised, the process goes on, and no tensor is lost. See hostile.py."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.forks import server
from tests.plugins import build_plugin
from tests.settings import MODES, SEED

TRIALS = int(os.environ.get("TORCHTPU_HOSTILE_TRIALS", "1"))


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_plugin(Path(__file__).with_name("faulty_plugin.c"), tmp_path_factory.mktemp("plugin"))


@pytest.mark.parametrize("trial", range(TRIALS))
@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_lost(plugin: Path, mode: str, trial: int, tmp_path: Path) -> None:
    environment = {**os.environ, "TORCHTPU_PLUGIN": str(plugin), "TORCHTPU_CACHE_DIR": str(tmp_path)}
    arguments = ["-m", "tests.fuzz.hostile", mode, str(1000 * SEED + trial)]
    finished = server().run(arguments, environment)
    assert finished.returncode == 0, f"python {' '.join(arguments)}\n{finished.stderr}"
    assert int(finished.stdout) > 0
