"""What the tests share: the device, the three modes, a cache folder, and a seed that is told when a test fails."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Iterator

import pytest
import torch
import torchtpu  # noqa: F401 (registers the device where autoloading is switched off)

MODES = ("debug", "strict", "fused")


def pytest_configure(config: pytest.Config) -> None:
    """The tests' compiled programs go to a folder of this run, not the user's. Workers share it."""
    if not hasattr(config, "workerinput"):
        os.environ["TORCHTPU_CACHE_DIR"] = tempfile.mkdtemp(prefix="torchtpu-tests-")
        os.environ.pop("TORCHTPU_CACHE", None)


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["TORCHTPU_CACHE_DIR"], ignore_errors=True)


def pytest_report_header() -> str:
    from tests.conformance.test_conformance import SEED

    return f"conformance cases drawn with TORCHTPU_CONFORMANCE_SEED={SEED}"


@pytest.fixture
def device() -> torch.device:
    """The device under test."""
    return torch.device("tpu")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test in each of the three modes."""
    with torch.tpu.set_eager_mode(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _restore_mode() -> Iterator[None]:
    before = torch.tpu.eager_mode
    yield
    torch.tpu.eager_mode = before


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> int:
    """Seeds every generator. TORCHTPU_TEST_SEED repeats a failure, "random" draws a new seed for each test."""
    chosen = os.environ.get("TORCHTPU_TEST_SEED", "0")
    value = random.SystemRandom().randrange(2**31) if chosen == "random" else int(chosen)
    random.seed(value)
    torch.manual_seed(value)
    request.node.add_report_section("setup", "seed", f"TORCHTPU_TEST_SEED={value}")
    return value


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Dynamo as if nothing had been compiled, before and after a test."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()
