"""The compiler's effort for small programs: little at first, full effort once they are used much."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import start_python

# Runs two programs of 128 KiB. Prints the results that differ from the previous one, by the number of the run.
RUNS = """
import hashlib, json, torch
torch.tpu.set_eager_mode("strict")
torch.manual_seed(0)
x = torch.randn(128, 128).to("tpu")
torch.tpu.synchronize()
torch.tpu.reset_cache_stats()
digests, last = {}, None
for run in range(300):
    result = torch.nn.functional.layer_norm(x, (128,))
    if run % 10 == 0 or run > 250:
        digest = hashlib.md5(result.cpu().numpy().tobytes()).hexdigest()
        if digest != last:
            digests[run], last = digest, digest
    result = torch.softmax(x, 1)
torch.testing.assert_close(result.cpu(), torch.softmax(x.cpu(), 1))
print(json.dumps({"digests": digests, **torch.tpu.cache_stats()}))
"""


def run(folder: Path, **environment: str) -> dict[str, Any]:
    finished = start_python(RUNS, TORCHTPU_CACHE_DIR=str(folder), **environment)
    assert (finished.returncode, finished.stderr) == (0, "")
    return json.loads(finished.stdout)


def test_what_is_used_much_is_compiled_again(tmp_path: Path) -> None:
    first = run(tmp_path / "one", XLA_FLAGS="")
    assert first["improved"] == 2
    assert first["compiles"] == first["requests"] - first["hits"]
    again = run(tmp_path / "two", XLA_FLAGS="")
    assert again["digests"] == first["digests"], "which executable runs follows from the number of the run"
    warm = run(tmp_path / "one", XLA_FLAGS="")
    assert (warm["compiles"], warm["improved"]) == (0, 2)
    assert warm["digests"] == first["digests"]


@pytest.mark.parametrize("environment", [{"TORCHTPU_COMPILE": "wait", "XLA_FLAGS": ""}, {}])
def test_full_effort_at_once(tmp_path: Path, environment: dict[str, str]) -> None:
    """With our variable, and if XLA's flags say how programs are compiled, as in tests."""
    if not environment:
        environment = {"XLA_FLAGS": "--xla_backend_optimization_level=1"}
    answer = run(tmp_path, **environment)
    assert answer["improved"] == 0
    assert len(answer["digests"]) == 1, "one program, one result"
