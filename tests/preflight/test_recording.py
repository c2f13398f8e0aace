"""What a script does on a device that computes nothing."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torchtpu.preflight.work import work_of_calls

from tests.helpers import run_python, start_python
from tests.preflight.recorded import PEAK_KIB, RECORD, SCRIPT, record


def test_recording(tmp_path: Path) -> None:
    """The script runs to its third step: its checks meet invented values that are plausible."""
    found = record(tmp_path)
    assert (found["steps"], found["failure"], found["stopped"]) == (3, "", True)
    assert found["taken"] == ["samples", 32]
    roles = {role for role, _ in found["inputs"]}  # type: ignore[attr-defined]
    assert {"parameters", "inputs"} <= roles
    names = [name for role, name in found["inputs"] if role == "parameters"]  # type: ignore[attr-defined]
    assert "0.up.weight" in names
    modules = found["modules"]
    assert {"0.up", "0.norm", "0.up (backward)", "1.down (backward)"} <= set(modules)  # type: ignore[call-overload]
    lines = SCRIPT.split("\n")
    reads = {lines[int(number) - 1].strip() for number in found["reads"]}  # type: ignore[attr-defined]
    assert "best = min(best, loss.item())" in reads
    assert "if not torch.isfinite(norm):" in reads
    calls = work_of_calls(found["text"])  # type: ignore[arg-type]
    assert len(calls) == found["calls"]


def test_a_time_limit_keeps_what_was_recorded(tmp_path: Path) -> None:
    """The alarm ends a function that holds a result which nothing has read. The operators before it are recorded."""
    script = tmp_path / "wait.py"
    script.write_text(
        "import signal, torch\n"
        "def main():\n"
        "    x = torch.ones(64, 64).to('tpu')\n"
        "    kept = (x @ x).relu()\n"
        "    signal.raise_signal(signal.SIGALRM)\n"
        "main()\n"
    )
    code = (
        "import sys\n"
        "from torchtpu.preflight import recording\n"
        "recording.prepare('v5e:1x1')\n"
        f"found = recording.record_script({str(script)!r}, [], 3, 120.0, 'fused')\n"
        "assert found.stopped and not found.failure, found\n"
        "names = {name for name, _, _ in found.programs[0].calls}\n"
        "assert any('relu' in name for name in names), names\n"
    )
    finished = run_python(code)
    assert finished.returncode == 0, finished.stderr


# The peak of the process itself: getrusage would count the process that started it.


def test_weights_take_no_memory() -> None:
    """A model of 64 GiB is made, in a process that stays small."""
    code = (
        "import torch\n"
        "weights = [torch.empty(2**30, device='tpu').normal_() for _ in range(16)]\n"
        "assert torch.tpu.memory_allocated() == 2**36, torch.tpu.memory_allocated()\n"
        "assert sum(weights).sum().isfinite().item()\n"
        f"{PEAK_KIB}\nassert peak < 2**22, peak\n"
        "assert torch.tpu.get_device_name() == 'TPU v5p'\n"
    )
    finished = run_python(code, TORCHTPU_DRY="v5p:2x2x1")
    assert finished.returncode == 0, finished.stderr


def test_padding_takes_no_memory() -> None:
    """From its third size on, the batch of a step is an input of its programs. Its values get padding, and the process
    stays small."""
    code = (
        "import torch\n"
        "layer = torch.nn.Linear(2048, 2048, device='tpu')\n"
        "for batch in (40, 50, 60, 70):\n"
        "    loss = layer(torch.randn(batch, 2048, 2048, device='tpu')).square().mean()\n"
        "    loss.backward()\n"
        "    assert torch.isfinite(loss.detach())\n"
        "assert torch.tpu.op_stats()['padded'] > 0\n"
        f"{PEAK_KIB}\nassert peak < 2**20, peak\n"
    )
    finished = start_python(code, TORCHTPU_DRY="v5p:2x2x1", TORCHTPU_EAGER_MODE="fused")
    assert finished.returncode == 0, finished.stderr


def test_weights_of_the_cpu_take_no_memory(tmp_path: Path) -> None:
    """A model of 8 GiB is made on the CPU and moved, in a process that stays small. Small tensors have their values."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch import nn\n"
        "model = nn.Sequential(*[nn.Linear(16384, 16384) for _ in range(8)], nn.LayerNorm(16384))\n"
        "assert model[-1].weight.sum() == 16384\n"
        "model.bfloat16().to('tpu')(torch.randn(8, 16384).to('tpu', torch.bfloat16)).sum().backward()\n"
        "assert torch.tpu.memory_allocated() >= 2 * 4 * 2**30\n"
        "print(model[0].weight.grad.sum().item())\n"
        "assert torch.ones(2**20).mul_(2).sum() == 2**21\n"
        f"{PEAK_KIB}\nassert peak < 3 * 2**20, peak\n"
    )
    finished = run_python(RECORD, str(script))
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert found["failure"] == "", finished.stderr
    assert not vars(torch.Tensor).get("normal_")


def test_a_step_of_many_layers(tmp_path: Path) -> None:
    """A step is what runs between two optimizer steps, not the part of it that comes again most often."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nmodel = torch.nn.Linear(64, 64).to('tpu')\n"
        "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
        "for _ in range(9):\n"
        "    for part in range(7):\n"
        "        loss = model(torch.randn(8, 64, device='tpu')).sum()\n"
        "        loss.backward()\n"
        "        loss.item()\n"
        "    optimizer.step()\n"
    )
    code = RECORD.replace("print(", "print([each.runs for each in found.programs])\nprint(", 1)
    finished = run_python(code, str(script))
    assert finished.returncode == 0, finished.stderr
    assert sum(json.loads(finished.stdout.splitlines()[0])) == 7


def test_a_compiled_step(tmp_path: Path) -> None:
    """A step of `compile_step` is what is judged, not the states that the optimizer made before it, alike for each
    parameter. The gradient of SiLU is one operator."""
    script = tmp_path / "train.py"
    script.write_text(
        "import torch\nfrom torch import nn\n"
        "layers = [nn.Linear(64, 64, bias=False) for _ in range(8)]\n"
        "model = nn.Sequential(*layers, nn.SiLU()).to('tpu', torch.bfloat16)\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "@torch.tpu.compile_step\n"
        "def step(x):\n"
        "    loss = model(x).float().square().mean()\n"
        "    loss.backward()\n"
        "    optimizer.step()\n"
        "    optimizer.zero_grad()\n"
        "    return loss.detach()\n"
        "while True:\n"
        "    step(torch.zeros(16, 64, dtype=torch.bfloat16).to('tpu')).item()\n"
    )
    found = record(tmp_path, script=script)
    modules = [module for module in found["modules"] if module]  # type: ignore[attr-defined]
    assert {"0", "7", "7 (backward)"} <= set(modules)
    text = str(found["text"])
    assert text.count("func.call @") < 60
    # Products of bfloat16 are rounded where they are made: a float32 one would take twice the memory.
    products = [line for line in text.splitlines() if "stablehlo.dot_general" in line]
    assert products
    assert all(line.endswith("xbf16>") for line in products)
