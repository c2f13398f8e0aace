"""Scripts that preflight records, and programs as it records them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import check_python

SCRIPT = """
import sys
import torch
from torch import nn

size = int(sys.argv[1]) if len(sys.argv) > 1 else 64


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.up, self.down = nn.Linear(size, 4 * size), nn.Linear(4 * size, size)

    def forward(self, x):
        return x + self.down(nn.functional.dropout(torch.relu(self.up(self.norm(x)))))


with torch.device("tpu"):
    model = nn.Sequential(Block(), Block(), nn.Linear(size, 10))
optimizer = torch.optim.AdamW(model.parameters())
scaler = torch.amp.GradScaler("tpu")
best = float("inf")
for step in range(1000):
    x, y = torch.randn(32, size).to("tpu"), torch.randint(10, (32,)).to("tpu")
    loss = nn.functional.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    if not torch.isfinite(norm):
        raise RuntimeError("diverged")
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    best = min(best, loss.item())
    if torch.isnan(loss) or best < -1:
        break
"""
RECORD = """
import json, sys
from torchtpu.preflight import recording
recording.prepare("v5e:1x1")
found = recording.record_script(sys.argv[1], sys.argv[2:], 3, 120.0, "fused")
largest = found.programs[0]
print("RESULT" + json.dumps({
    "steps": found.steps, "failure": found.failure, "stopped": found.stopped,
    "reads": [line.rpartition(":")[2] for line, _ in found.reads],
    "inputs": sorted({(each.role, each.name) for each in largest.inputs}),
    "taken": found.taken,
    "modules": sorted({module for _, _, module in largest.calls}),
    "calls": len(largest.calls), "text": largest.text,
}))
"""
RECORD_MESH = """
import dataclasses, json, sys
from torchtpu.preflight import mesh, recording
recording.prepare("v5e:1x1")
axes = mesh.parse("data=2,fsdp=8", "v5e:4x4")
found = recording.record_script(sys.argv[1], [], 3, 120.0, "fused", axes)
sent = mesh.traffic(found.sent, axes, found.steps)
roles = sorted({(storage.role, storage.name) for each in found.programs for storage in each.inputs})
modules = sorted({module for each in found.programs for calls in each.calls_of_runs for _, _, module in calls})
sent = {each.axis: each.bytes for each in sent}
print("RESULT" + json.dumps([found.failure, found.steps, sent, roles, modules]))
"""


HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is not installed (pip install libtpu)")

# The peak of the process itself: getrusage would count the process that started it.
PEAK_KIB = "peak = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))"


def record(tmp_path: Path, *arguments: str, script: Path | None = None) -> dict[str, object]:
    if script is None:
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
    found: dict[str, object] = json.loads(check_python(RECORD, str(script), *arguments).rpartition("RESULT")[2])
    return found


def record_mesh(tmp_path: Path, text: str) -> Any:
    """What a script of rank 0 of 16 did: failure, steps, bytes sent by axes, roles with names, and modules."""
    script = tmp_path / "train.py"
    script.write_text(text)
    return json.loads(check_python(RECORD_MESH, str(script)).rpartition("RESULT")[2])


def product(rows: int, inner: int, columns: int, element: str = "f32", batch: int = 1) -> str:
    """A module whose only call is a batch of matrix products, as the core writes them."""
    left, right, out = (
        f"tensor<{batch}x{x}x{y}x{element}>" for x, y in ((rows, inner), (inner, columns), (rows, columns))
    )
    dims = (
        "lhs_batching_dimensions = [0], rhs_batching_dimensions = [0], lhs_contracting_dimensions = [2], "
        "rhs_contracting_dimensions = [1]"
    )
    precision = "#stablehlo<precision HIGHEST>"
    return f"""module @torchtpu {{
func.func public @main(%i0: {left}, %i1: {right}) -> ({out}) {{
%o0 = func.call @op0(%i0, %i1) : ({left}, {right}) -> ({out})
"func.return"(%o0) : ({out}) -> ()
}}
func.func private @op0(%v0: {left} , %v1: {right} ) -> ({out}) {{
%v2 = "stablehlo.dot_general"(%v0, %v1) {{dot_dimension_numbers = #stablehlo.dot<{dims}>, \
precision_config = [{precision}, {precision}]}} : ({left}, {right}) -> {out}
"func.return"(%v2) : ({out}) -> ()
}}
}}"""
