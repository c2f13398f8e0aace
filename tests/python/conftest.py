"""What the tests share: the device, the three modes, and a seed that is told when a test fails."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

import pytest
import torch
import torchtpu  # noqa: F401 (registers the device where autoloading is switched off)

MODES = ("debug", "strict", "fused")


def pytest_report_header() -> str:
    from test_conformance import SEED

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
