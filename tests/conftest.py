"""Shared by all tests: the device, the modes, XLA's flags, a cache folder, and the seed."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torchtpu._C import finish_cache, set_sizes

from tests.seeds import seed_everything
from tests.settings import MODES, SEED, skip_guard_timing, with_quick_compiles


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--each-mode", action="store_true", help="run each case in each mode, not only those about modes")
    parser.addoption("--optimized", action="store_true", help="compile programs as users do, which takes twice as long")


def pytest_configure(config: pytest.Config) -> None:
    """Sets the environment of the workers and of the processes that tests start. They share one folder of
    programs."""
    skip_guard_timing()
    if hasattr(config, "workerinput"):
        return
    os.environ["TORCHTPU_CACHE_DIR"] = tempfile.mkdtemp(prefix="torchtpu-tests-")
    os.environ.pop("TORCHTPU_CACHE", None)
    # A worker keeps one core busy. More threads would compete.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    if not config.getoption("--optimized"):
        # In Fused, programs of several operators are to be tested.
        os.environ.setdefault("TORCHTPU_COMPILE", "wait")
        os.environ["XLA_FLAGS"] = with_quick_compiles(os.environ.get("XLA_FLAGS", ""))


def pytest_sessionfinish() -> None:
    """Waits for compiles in the background and for what they write, before the folder of programs is removed."""
    finish_cache()
    gc.unfreeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        shutil.rmtree(os.environ["TORCHTPU_CACHE_DIR"], ignore_errors=True)


def pytest_report_header() -> str:
    return f"drawn with TORCHTPU_TEST_SEED={SEED}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects modes for tests of lowerings, which are the same in all modes."""
    if not config.getoption("--each-mode"):
        modes: dict[tuple[Path, str], list[str]] = {}
        for item in items:
            if _is_in_one_mode(item):
                modes.setdefault(_case(item), []).append(item.callspec.params["mode"])
        left_out = [item for item in items if not _is_run(item, modes)]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if _is_run(item, modes)]
    # Imported modules are never garbage. Frozen, they are not visited by each collection of garbage.
    gc.collect()
    gc.freeze()


def _is_run(item: pytest.Item, modes: dict[tuple[Path, str], list[str]]) -> bool:
    if not _is_in_one_mode(item):
        return True
    choice = modes[_case(item)]
    return item.callspec.params["mode"] == choice[zlib.crc32(_case(item)[1].encode()) % len(choice)]


def _is_in_one_mode(item: pytest.Item) -> bool:
    call = getattr(item, "callspec", None)
    return call is not None and "mode" in call.params and _has_one_mode(item)


def _case(item: pytest.Item) -> tuple[Path, str]:
    """What is the same for all modes of a case."""
    parts = "-".join(part for part in item.callspec.id.split("-") if part not in MODES)
    return item.path, f"{item.originalname} {parts}"


def _has_one_mode(item: pytest.Item) -> bool:
    if item.path.parent.name == "operators":
        return item.get_closest_marker("each_mode") is None
    return item.get_closest_marker("one_mode") is not None


@pytest.fixture
def device() -> torch.device:
    """The device under test."""
    return torch.device("tpu")


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a test in each of the three modes; in tests/operators, each case in one of them."""
    with torch.tpu.set_eager_mode(request.param):
        yield request.param


@pytest.fixture(autouse=True)
def _restore_mode() -> Iterator[None]:
    before = torch.tpu.eager_mode
    yield
    torch.tpu.eager_mode = before


@pytest.fixture(autouse=True)
def seed(request: pytest.FixtureRequest) -> int:
    """Seeds every generator before each test."""
    seed_everything(SEED)
    request.node.add_report_section("setup", "seed", f"TORCHTPU_TEST_SEED={SEED}")
    return SEED


@pytest.fixture(autouse=True)
def _forget_sizes() -> None:
    """Forgets the sizes that other tests have used: they decide which sizes are constants of a program."""
    set_sizes(os.environ.get("TORCHTPU_SIZES", "dynamic"))


@pytest.fixture
def changing_sizes() -> None:
    """Sizes that change are inputs of programs, whatever the environment says."""
    set_sizes("dynamic")


@pytest.fixture
def constant_sizes() -> None:
    """Sizes are constants of programs."""
    set_sizes("static")


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    """Resets Dynamo before and after a test, and its counters before."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()
