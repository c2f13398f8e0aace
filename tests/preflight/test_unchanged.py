"""What preflight adds to a process changes no program and no key of the cache."""

from __future__ import annotations

import json
from pathlib import Path

from tests.helpers import check_python

# Three steps. Prints what the cache counts, and the texts of the programs that were dumped.
TRAIN = """
import json, sys, torch
from pathlib import Path
from torchtpu import _C

def train():
    torch.manual_seed(0)
    torch.tpu.set_eager_mode("fused")
    model = torch.nn.Sequential(torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 3)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for step in range(3):
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(torch.randn(4, 6).to("tpu")), torch.arange(4).to("tpu") % 3)
        loss.backward()
        optimizer.step()
        loss.item()

_C.dump_programs(FOLDER)
"""
PLAIN = "train()\n"
# As `recording.record` does, on the device that computes.
RECORDED = """
from torchtpu.preflight.modules import ModuleNames
with ModuleNames(lambda steps: None):
    _C.begin_explaining(True)
    train()
    _C.end_explaining()
"""
COUNTS = 'print(json.dumps({name: torch.tpu.cache_stats()[name] for name in ("compiles", "disk_hits")}))\n'


def test_programs_and_keys_are_the_same(tmp_path: Path) -> None:
    """A recorded training finds each program of a plain one in the cache. Both have the same texts, without lines."""
    texts, counts = [], []
    for name, code in (("plain", PLAIN), ("recorded", RECORDED)):
        folder = tmp_path / name
        folder.mkdir()
        code = TRAIN.replace("FOLDER", repr(str(folder))) + code + COUNTS
        counts.append(json.loads(check_python(code, TORCHTPU_CACHE_DIR=str(tmp_path / "cache"))))
        texts.append(sorted(path.read_text() for path in folder.rglob("*") if path.suffix in (".mlir", ".txt")))
    assert counts[0]["compiles"] > 0
    assert counts[1]["compiles"] == 0
    assert texts[0]
    assert texts[0] == texts[1]
    assert not any("loc(" in text for text in texts[0])
