"""Programs of many ranks are valid TPU programs: libtpu compiles each, without a TPU."""

from __future__ import annotations

import importlib.util
import json
import os
from typing import Any

import pytest

from tests.distributed.launch import python
from tests.settings import without_quick_compiles

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None and "TPU_LIBRARY_PATH" not in os.environ,
    reason="libtpu is not installed: pip install libtpu",
)


def compiled(*arguments: str) -> dict[str, dict[str, Any]]:
    finished = python(["-m", "tests.distributed.ahead", *arguments], **without_quick_compiles(os.environ))
    assert finished.returncode == 0, finished.stderr
    reports: dict[str, dict[str, Any]] = json.loads(finished.stdout.splitlines()[-1])
    errors = {name: report["error"] for name, report in reports.items() if "error" in report}
    assert not errors
    return reports


@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1", "v6e:2x2"])
def test_collectives(topology: str) -> None:
    assert len(compiled("collectives", topology, "4")) == 12


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "ranks"), [("v5p:4x4x4", 64), ("v6e:4x4", 16)])
def test_collectives_of_a_step_run_beside_its_products(topology: str, ranks: int) -> None:
    (report,) = compiled("llama", topology, str(ranks), "4").values()
    assert report["asynchronous"] > 0


@pytest.mark.slow
def test_the_text_of_a_program_for_all_ranks_does_not_grow_with_them() -> None:
    (few,) = compiled("reduction", "v5p:16x20x28", "8960").values()
    (many,) = compiled("reduction", "v5p:16x20x28*12", "107520").values()
    assert many["characters"] == few["characters"]
