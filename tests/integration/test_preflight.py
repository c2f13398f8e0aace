"""Preflight: what a script does on a device that computes nothing, and what a TPU's compiler says of it."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F
from torchtpu.__main__ import main
from torchtpu.preflight import changes, compiler, hlo, pictures
from torchtpu.preflight.chips import CHIPS, find, topology_of
from torchtpu.preflight.mesh import devices_of, parse
from torchtpu.preflight.recording import Program, Recording
from torchtpu.preflight.remedies import remedy
from torchtpu.preflight.suggestions import Nomination, nominate
from torchtpu.preflight.timing import Part
from torchtpu.preflight.work import Attention, FilledHeads, Work, products_of_functions, work_of_calls

from tests.helpers import start_python

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
HAS_LIBTPU = importlib.util.find_spec("libtpu") is not None
needs_libtpu = pytest.mark.skipif(not HAS_LIBTPU, reason="libtpu is not installed (pip install libtpu)")

DATA = Path(__file__).parent / "data"


def record(tmp_path: Path, *arguments: str, script: Path | None = None) -> dict[str, object]:
    if script is None:
        script = tmp_path / "train.py"
        script.write_text(SCRIPT)
    command = [sys.executable, "-c", RECORD, str(script), *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    found: dict[str, object] = json.loads(finished.stdout.rpartition("RESULT")[2])
    return found


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


# The peak of the process itself: getrusage would count the process that started it.
PEAK_KIB = "peak = next(int(line.split()[1]) for line in open('/proc/self/status') if line.startswith('VmHWM'))"


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
    finished = start_python(code, TORCHTPU_DRY="v5p:2x2x1")
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
    finished = subprocess.run([sys.executable, "-c", RECORD, str(script)], capture_output=True, text=True, timeout=240)
    assert finished.returncode == 0, finished.stderr
    found = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert found["failure"] == "", finished.stderr
    assert not vars(torch.Tensor).get("normal_")


FSDP = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group()
torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))
mesh = dist.init_device_mesh("tpu", (2, 8), mesh_dim_names=("data", "fsdp"))
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)) for _ in range(3)])
for block in model:
    fully_shard(block, mesh=mesh["fsdp"])
fully_shard(model, mesh=mesh["fsdp"])
model.to("tpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(9):
    loss = model(torch.randn(64, 256, device="tpu")).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.to_local(), group=mesh.get_group("data"))
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
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


def test_a_mesh(tmp_path: Path) -> None:
    """The bytes of FSDP2 and of a gradient's all-reduce, along the axes of a mesh of 16 devices, in one process."""
    script = tmp_path / "train.py"
    script.write_text(FSDP)
    finished = subprocess.run(
        [sys.executable, "-c", RECORD_MESH, str(script)], capture_output=True, text=True, timeout=240
    )
    assert finished.returncode == 0, finished.stderr
    failure, steps, sent, roles, modules = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert (failure, steps) == ("", 3)
    size = 3 * (2 * 256 * 1024 + 1024 + 256) * 4
    # Parameters are gathered forward and backward, and gradients are scattered.
    assert sent["fsdp"] == pytest.approx(3 * size * 7 / 8, rel=0.02)
    assert sent["data"] == pytest.approx(size / 8, rel=0.02)
    assert {"parameters", "gradients", "optimizer_state"} <= {role for role, _ in roles}
    assert ["gathered", "2: split_with_sizes_copy.out"] in roles
    # Blocks that are alike run one program, each under its own name.
    assert {f"{block}.0{part}" for block in range(3) for part in ("", " (backward)")} <= set(modules)
    assert ["gathered", "1.2 (backward): allgather_base over fsdp"] in roles
    # Only what the script draws has no name.
    assert {name for role, name in roles if role == "inputs"} <= {""}


TENSOR_PARALLEL = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group()
torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))
mesh = dist.init_device_mesh("tpu", (2, 8), mesh_dim_names=("data", "fsdp"))
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(3)]).to("tpu")
for block in model:
    parallelize_module(block, mesh["fsdp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    loss = model(torch.randn(32, 64, device="tpu", requires_grad=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"""


def test_tensor_parallel(tmp_path: Path) -> None:
    """DTensor's collectives: a block sums its results forward, and the gradients of its inputs backward."""
    script = tmp_path / "train.py"
    script.write_text(TENSOR_PARALLEL)
    finished = subprocess.run(
        [sys.executable, "-c", RECORD_MESH, str(script)], capture_output=True, text=True, timeout=240
    )
    assert finished.returncode == 0, finished.stderr
    failure, steps, sent, *_ = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert (failure, steps) == ("", 3)
    assert sent == {"fsdp": pytest.approx(3 * 2 * (32 * 64 * 4) * 2 * 7 / 8)}


DDP = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
device = torch.accelerator.current_accelerator()
dist.init_process_group()
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device))
HOOK
data = TensorDataset(torch.randn(512, 64))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(9):
    loader.sampler.set_epoch(epoch)
    for number, (x,) in enumerate(loader):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(x.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(loss.item())
"""


@pytest.mark.parametrize(
    ("hook", "element"),
    [("", 4), ("model.register_comm_hook(None, default_hooks.bf16_compress_hook)", 2)],
    ids=["plain", "compressed"],
)
def test_data_parallel(hook: str, element: int, tmp_path: Path) -> None:
    """DDP as under torchrun, with mixed precision: each gradient is reduced once in a step, over all ranks."""
    script = tmp_path / "train.py"
    script.write_text(DDP.replace("HOOK", hook))
    finished = subprocess.run(
        [sys.executable, "-c", RECORD_MESH, str(script)], capture_output=True, text=True, timeout=240
    )
    assert finished.returncode == 0, finished.stderr
    failure, steps, sent, roles, modules = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert (failure, steps) == ("", 3), finished.stderr
    size = (2 * 64 * 256 + 256 + 64) * element
    assert sent == {"data, fsdp": pytest.approx(size * 2 * 15 / 16)}
    assert ["parameters", "module.0.weight"] in roles
    assert {"module.0", "module.2 (backward)"} <= set(modules)


ACCUMULATION = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, required=True)
parser.add_argument("--accumulate", type=int, default=4)
options = parser.parse_args()
device = torch.accelerator.current_accelerator()
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
data = TensorDataset(torch.randn(512, 64), torch.randint(10, (512,)))
loader = DataLoader(data, batch_size=options.batch, shuffle=True, pin_memory=True, num_workers=1)
scaler = torch.amp.GradScaler(device.type)
for number, (x, y) in enumerate(loader):
    with torch.autocast(device.type, dtype=torch.float16):
        loss = nn.functional.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device)) / options.accumulate
    scaler.scale(loss).backward()
    if (number + 1) % options.accumulate == 0:
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print(loss.item())
"""


def test_accumulated_gradients(tmp_path: Path) -> None:
    """A script with arguments, mixed precision and workers that load: a step is that of the optimizer."""
    script = tmp_path / "train.py"
    script.write_text(ACCUMULATION)
    found = record(tmp_path, "--batch", "8", script=script)
    assert (found["steps"], found["failure"], found["stopped"]) == (3, "", True)
    assert found["taken"] == ["samples", 32]


TRAINER = """
import sys
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

tokens = torch.randint(1000, (64, 32))
model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_embd=128, n_head=2, vocab_size=1000))
options = TrainingArguments(sys.argv[1], per_device_train_batch_size=4, logging_steps=1, save_steps=2, report_to=[])
Trainer(model=model, args=options, train_dataset=[{"input_ids": each, "labels": each} for each in tokens]).train()
"""


def test_trainer(tmp_path: Path) -> None:
    """transformers' Trainer is on the device without a variable, logs and saves."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    script = tmp_path / "train.py"
    script.write_text(TRAINER)
    found = record(tmp_path, str(tmp_path / "out"), script=script)
    assert (found["steps"], found["failure"], found["stopped"]) == (3, "", True)
    assert found["taken"] == ["tokens", 4 * 32]
    assert ["parameters", "transformer.h.0.attn.c_attn.weight"] in found["inputs"]  # type: ignore[operator]


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
    finished = subprocess.run([sys.executable, "-c", code, str(script)], capture_output=True, text=True, timeout=240)
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


EVALUATION = """
import torch
from torch import nn

model, criterion = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).to("tpu"), nn.MSELoss()
loss = torch.tensor(1.0)
while loss > 1e-9:
    with torch.no_grad():
        loss = criterion(model(torch.randn(4, 64).to("tpu")), torch.zeros(4, 8).to("tpu"))
"""
SAVING = """
import torch
from torch import nn
from torch.distributed import checkpoint

model = nn.Linear(8, 8).to("tpu")
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)
best = float("inf")
for epoch in range(2):
    optimizer.zero_grad()
    loss = model(torch.randn(4, 8).to("tpu")).square().mean()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
    optimizer.step()
    schedule.step(loss)
    print(loss)
    if loss.item() < best:
        best = loss.item()
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, folder + "/best.pt")
    if best < 0:
        raise SystemExit("the loss is negative")
checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder + "/sharded")
loaded = torch.load(folder + "/best.pt", map_location="tpu")
model.load_state_dict(loaded["model"])
optimizer.load_state_dict(loaded["optimizer"])
"""


def test_a_loop_without_an_optimizer(tmp_path: Path) -> None:
    """Its steps are forward passes. The loss is a module, too, and takes no samples."""
    script = tmp_path / "evaluate.py"
    script.write_text(EVALUATION)
    found = record(tmp_path, script=script)
    assert (found["steps"], found["failure"], found["stopped"]) == (3, "", True)
    assert found["taken"] == ["samples", 4]
    assert found["reads"] == ["7"]


def test_saving(tmp_path: Path) -> None:
    """Checkpoints, schedules and early stopping: the script runs to its end, and each line that reads is listed."""
    script = tmp_path / "train.py"
    script.write_text(f"folder = {str(tmp_path)!r}\n" + SAVING)
    found = record(tmp_path, script=script)
    assert (found["steps"], found["failure"], found["stopped"]) == (2, "", False)
    lines = script.read_text().split("\n")
    reads = {lines[int(number) - 1].strip().partition("(")[0] for number in found["reads"]}  # type: ignore[attr-defined]
    reading = {"nn.utils.clip_grad_norm_", "schedule.step", "print", "if loss.item", "best = loss.item"}
    assert reading | {"torch.save", "checkpoint.save"} <= reads


def test_unknown_chip() -> None:
    finished = start_python("import torch; torch.ones(1, device='tpu')", TORCHTPU_DRY="v9:1x1")
    assert finished.returncode != 0
    assert "TORCHTPU_DRY=v9:1x1 names no chip" in finished.stderr
    with pytest.raises(ValueError, match="there is no chip 'v9'"):
        find("v9:1x1")


def test_topologies() -> None:
    assert [topology_of(name) for name in ("v5e", "v5p", "v6e:2x2")] == ["v5e:1x1", "v5p:2x2x1", "v6e:1x1"]
    assert [devices_of(name) for name in ("v5e", "v5e:4x4", "v5p:2x2x4", "tpu7x:2x2x1")] == [1, 16, 16, 8]
    assert parse("", "v5e") is None
    mesh = parse("data=2,fsdp=8", "v5e:4x4")
    assert mesh is not None
    assert (mesh.axis_of([0, 1, 2]), mesh.axis_of([0, 8]), mesh.axis_of(range(16))) == ("fsdp", "data", "data, fsdp")
    # A side of 16 chips is a ring, one of 4 is none; two sides carry twice as much.
    assert [parse("x=16", "v5e:4x4").bandwidth("x"), parse("y=16,x=16", "v5e:16x16").bandwidth("x")] == [100e9, 100e9]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="the mesh fsdp=8 has 8 ranks, and v5e:4x4 has 16 devices"):
        parse("fsdp=8", "v5e:4x4")
    with pytest.raises(ValueError, match="--mesh takes axes such as fsdp=8,tp=2, not fsdp"):
        parse("fsdp", "v5e:4x4")
    assert all(chip.flops > 1e14 and chip.memory > 2**33 for chip in CHIPS.values())


def test_used_process() -> None:
    """The device of a process that has used it stays what it is."""
    code = (
        "import torch\nfrom torchtpu.preflight import preflight\ntorch.ones(1, device='tpu')\n"
        "try:\n    preflight(print)\nexcept RuntimeError as error:\n    print(error)\n"
    )
    assert "has not used the device" in start_python(code).stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chip", "v9", "script.py"], "there is no chip 'v9'"),
        (["missing.py"], "there is no script missing.py"),
        (["--steps", "0", __file__], "--steps must be at least 1"),
        (["--batch", "1,x", __file__], "--batch takes sizes such as 1,2,4, not 1,x"),
        (["--what-if", "v5e,v9", __file__], "there is no chip 'v9'"),
        (["--chip", "v5e:4x4", "--mesh", "fsdp=8", __file__], "has 8 ranks, and v5e:4x4 has 16 devices"),
        (["--chip", "v5e:4", __file__], "a topology is a chip and its sizes, such as v5e:4x4, not v5e:4"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", *arguments]) == 2
    assert message in capsys.readouterr().err


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


def nominated(text: str) -> list[Nomination]:
    program = Program(text, [("bmm", "train.py:7", "")], [], [], [])
    return nominate(Recording([program], 3, [], []))


def test_work() -> None:
    """float32 is multiplied in six parts, and tiles that are not full are counted whole."""
    assert work_of_calls(product(256, 128, 512)) == {0: Work(2.0 * 256 * 128 * 512, 6 * 2.0 * 256 * 128 * 512)}
    assert work_of_calls(product(256, 64, 512, "bf16")) == {0: Work(2.0 * 256 * 64 * 512, 2.0 * 256 * 128 * 512)}
    # A kernel of splash attention over a batch of heads that were filled up from 64 places.
    heads = "tensor<2x4x256x128xbf16>"
    kernel = f"""func.func private @op0(%v0: {heads}) -> ({heads}) {{
%0 = stablehlo.pad %v0, %c, high = [0, 0, 0, 64] : (tensor<2x4x256x64xbf16>, tensor<bf16>) -> {heads}
%1 = stablehlo.custom_call @tpu_custom_call(%i, %0, %0) {{kernel_name = "splash_mha_fwd"}} : \
(tensor<1x2x2xi8>, {heads}, {heads}) -> ({heads})
}}"""
    whole = 2 * (2.0 * 8 * 256 * 256 * 128)
    filled, attention = products_of_functions(kernel)["op0"]
    assert filled == FilledHeads(width=64)
    assert attention == Attention(whole, whole / 2)
    # A column costs as little as eight.
    assert work_of_calls(product(4096, 128, 1, "bf16")) == {0: Work(2.0 * 4096 * 128, 2.0 * 4096 * 128 * 8)}


def test_nominations() -> None:
    (precise,) = nominated(product(256, 128, 512))
    assert (precise.line, "bfloat16" in precise.what) == ("train.py:7", True)
    changed = precise.applied(Program(product(256, 128, 512), [], [], [], [])).text
    assert "HIGHEST" not in changed
    assert changed.count("precision DEFAULT") == 2
    assert nominated(product(4096, 4096, 50257, "bf16")) == []  # 50304 would gain a thousandth
    (padded,) = nominated(product(4096, 257, 4096, "bf16"))
    assert "256 instead of 257" in padded.what
    changed = padded.applied(Program(product(4096, 257, 4096, "bf16"), [], [], [], [])).text
    assert changed == product(4096, 256, 4096, "bf16")
    (heads,) = nominated(product(1024, 64, 1024, "bf16", batch=16))
    assert heads.change == "head_dim=128"
    assert nominated(product(1024, 128, 1024, "bf16", batch=16)) == []


@pytest.mark.parametrize(
    ("why", "words"),
    [
        (
            "add: argument 1 changed from float32[4, 8] to float32[4, 9] at train.py:7",
            "dimension 1 changes from 8 to 9: pad it to few sizes, or say so of the tensor x that it comes from, "
            "where it is dimension d: torch.tpu.mark_dynamic(x, d, max=9)",
        ),
        ("add: argument 2 changed from float32[] to float32[4]", "the number of dimensions changes"),
        ("add: argument 2 changed from float32[4] to bfloat16[4]", "the dtype changes from float32 to bfloat16"),
        ("add: argument 2 changed from float32[4] to float32[4, 4]", "the number of dimensions changes"),
        ("mul: argument 2 changed from 0.5 to 0.25", "a number changes"),
        ("mul: its first call at train.py:7", "for the first time"),
    ],
)
def test_remedies(why: str, words: str) -> None:
    assert words in remedy([why])
    assert remedy(["the same calls in another order"]) == ""


def test_pictures() -> None:
    history = [{"parameters": 2**30}, {"parameters": 2**30, "activations": 2**31}]
    drawn = pictures.memory_over_step(history, 2**34)
    assert all(f"<title>{role}</title>" in drawn for role in ("parameters", "activations"))
    parts = [Part("mlp", (0.5, 1.0), 1e14, 10**9, "compute"), Part("norm", (0.1, 0.2), 0.0, 10**9, "memory")]
    assert pictures.roofline(parts, find("v5e")).count("<circle") == 1
    mesh = parse("data=2,fsdp=8", "v5e:4x4")
    assert mesh is not None
    assert (mesh.group_of_first("data"), mesh.group_of_first("fsdp")) == ([0, 8], list(range(8)))
    assert pictures.groups(mesh, ["data", "fsdp"]).count("<rect") == 32


def test_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    attention = F.scaled_dot_product_attention
    monkeypatch.setattr(F, "scaled_dot_product_attention", attention)
    monkeypatch.setattr(torch.utils.data.DataLoader, "__init__", torch.utils.data.DataLoader.__init__)
    taken, check = changes.apply("batch=8", ["--size", "{batch}"])
    assert taken == ["--size", "8"]
    check()
    taken, check = changes.apply("batch=3,head_dim=128", ["--size", "2"])
    with pytest.raises(changes.ChangeError, match="the script makes no DataLoader"):
        check()
    batches = list(torch.utils.data.DataLoader(torch.arange(7), batch_size=2))  # type: ignore[arg-type]
    assert [len(batch) for batch in batches] == [3, 3, 1]
    # Four heads of 64 become two of 128: those of a model whose places are viewed so.
    x = torch.randn(2, 5, 256)
    four, two = (x.view(2, 5, -1, width).transpose(1, 2) for width in (64, 128))
    joined = F.scaled_dot_product_attention(four, four, four, is_causal=True)
    expected = attention(two, two, two, is_causal=True).transpose(1, 2).reshape(x.shape)
    torch.testing.assert_close(joined.transpose(1, 2).reshape(x.shape), expected)
    check()
    with pytest.raises(changes.ChangeError, match="there is no change 'speed=9'"):
        changes.apply("speed=9", [])


def test_schedule() -> None:
    """A fusion of a matrix product, with its weights copied to the chip's own memory before."""
    module = hlo.parse((DATA / "schedule.txt").read_text())
    fusion = module.computations[module.entry][-1]
    assert (module.entry, fusion.opcode, fusion.cycles) == ("main", "fusion", 1829)
    assert module.calls_of(fusion) == {3}
    # The compiler's own copy serves the fusion.
    assert module.call_of("copy-start.1") == 3
    # f32[128,64] is padded to 128 columns; the weights of the fusion lie in the chip's own memory.
    assert (fusion.shapes[0].padded, fusion.shapes[0].dense) == (128 * 128 * 4, 128 * 64 * 4)
    done = module.computations[module.entry][3]
    assert [shape.in_memory for shape in done.shapes] == [False]


def test_traffic() -> None:
    """Of what an instruction slices, and of what it writes in place, the parts count."""
    module = hlo.parse("""
%taking (p0: f32[1024,128], p1: f32[8,128]) -> f32[1024,128] {
  %p0 = f32[1024,128]{1,0:T(8,128)} parameter(0)
  %p1 = f32[8,128]{1,0:T(8,128)} parameter(1)
  %same = f32[1024,128]{1,0:T(8,128)} bitcast(%p0)
  %part = f32[8,128]{1,0:T(8,128)} slice(%same), slice={[0:8], [0:128]}
  %sum = f32[8,128]{1,0:T(8,128)} add(%part, %p1)
  ROOT %whole = f32[1024,128]{1,0:T(8,128)} dynamic-update-slice(%p0, %sum, %at, %at)
}
ENTRY %main (a: f32[1024,128], b: f32[8,128]) -> f32[1024,128] {
  %a = f32[1024,128]{1,0:T(8,128)} parameter(0)
  %b = f32[8,128]{1,0:T(8,128)S(1)} parameter(1)
  %rows = f32[16,128]{1,0:T(8,128)} dynamic-slice(%a, %i, %i), dynamic_slice_sizes={16,128}
  %fusion.1 = f32[1024,128]{1,0:T(8,128)} fusion(%a, %b), kind=kLoop, calls=%taking
  ROOT %negate = f32[1024,128]{1,0:T(8,128)} negate(%fusion.1)
}
""")
    row = 128 * 4
    rows, fusion, negate = module.body[2:]
    assert [module.traffic(each) for each in (rows, fusion, negate)] == [2 * 16 * row, 2 * 8 * row, 2 * 1024 * row]


def test_assignment() -> None:
    blocks = hlo.allocations((DATA / "assignment.txt").read_text())
    assert [(block.kind, block.size) for block in blocks] == [
        ("parameter", 65536),
        ("output", 65536),
        ("temporary", 4096),
    ]
    assert blocks[2].values == [("copy.1", 2048, 0), ("copy.2", 2048, 2048)]
    assert hlo.total_bytes(blocks) == 2 * 65536 + 4096
    ranges = "  InstructionSequence:\n    0:a\n  BufferLiveRange:\n    copy.1{0}:3-7\n    copy.1{1}:1-4\n  Live ranges"
    assert hlo.live_ranges(ranges) == {"copy.1": (1, 7)}


@pytest.mark.parametrize(
    ("child", "seconds", "words"),
    [
        ("import os; input(); os.kill(os.getpid(), 9)", 240.0, "the compiler died of signal 9: it said nothing"),
        ("import sys; input(); sys.exit('no such flag')", 240.0, "no such flag"),
        (
            "while True: input(); print('\"libtpu, not installed\"', flush=True)",
            240.0,
            "libtpu is not installed: `pip",
        ),
        ("while True: input(); print('\"\"', flush=True)", 240.0, "the compiler wrote nothing down"),
        ("while True: input()", 0.2, "the compiler did not answer within 0 s; --time-limit gives it more"),
    ],
)
def test_a_compiler_that_fails(
    child: str, seconds: float, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each failure is one sentence, and the next program is asked of a process that lives."""
    monkeypatch.setattr(compiler, "_CHILD", child)
    program = Program(product(8, 8, 8), [], [], [], [])
    with compiler.Compilers(seconds) as compilers:
        for folder in ("first", "second"):
            with pytest.raises(compiler.CompilerError, match=words):
                compilers.compile(program, "v5e:1x1", tmp_path / folder, deep=False)


REFUSED = """
import json
import torch
from torch import nn
from torchtpu.preflight import compiler, preflight

compiler._CHILD = PROGRAM


def train(steps):
    model = nn.Linear(8, 8).to("tpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    for _ in range(steps):
        loss = model(torch.ones(4, 8).to("tpu")).square().mean()
        loss.backward()
        optimizer.step()
        print(loss.item())


report = preflight(train, 9)
assert "<html" in report.html()
print("RESULT" + json.dumps([report.as_dict(), str(report)]))
"""
REFUSES = "while True: input(); print('\"INVALID_ARGUMENT: bad layout\\\\nat line 7\"', flush=True)"


@pytest.mark.parametrize(
    ("child", "words"),
    [
        ("import os; input(); os.kill(os.getpid(), 6)", "the compiler died of signal 6: it said nothing"),
        (REFUSES, "the compiler refuses the program: INVALID_ARGUMENT: bad layout"),
    ],
)
def test_a_refused_program(child: str, words: str) -> None:
    """The report has one sentence, and what the script did until then."""
    finished = start_python(REFUSED.replace("PROGRAM", repr(child)))
    assert finished.returncode == 0, finished.stderr
    found, text = json.loads(finished.stdout.rpartition("RESULT")[2])
    assert set(found["problems"]) == {words}
    assert f"  not judged: {words}" in text.splitlines()
    assert (found["fits"], found["step_seconds"], found["steps"], found["failure"]) == (None, None, 3, None)
    assert [each["reads"] for each in found["assumed"]] == [3]
    assert found["throughput"]["in_a_step"] == 4


def test_a_compile_that_ends_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the compiler had written down before it died is kept, with the reason."""
    child = f"""
import json, os
_, _, folder, whole = json.loads(input())
for name in ("{compiler.ASSIGNMENT}", "{compiler.SCHEDULED}"):
    with open(folder + "/module_0001." + name, "w") as file:
        file.write(name + "}}")
os.kill(os.getpid(), 11)
"""
    monkeypatch.setattr(compiler, "_CHILD", child)
    with compiler.Compilers(240.0) as compilers:
        dumps = compilers.compile(Program(product(8, 8, 8), [], [], [], []), "v5e:1x1", tmp_path, deep=True)
    assert dumps.assignment == f"{compiler.ASSIGNMENT}}}"
    assert (dumps.code, dumps.out_of_memory) == ("", "")
    assert dumps.problem == "the compiler died of signal 11: it said nothing"


def test_a_compiler_without_phases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the first phase cannot run alone, the whole compile is ended when that phase has written its files."""
    child = f"""
import json, time
while True:
    _, _, folder, whole = json.loads(input())
    if whole:
        for name in ("{compiler.ASSIGNMENT}", "{compiler.SCHEDULED}"):
            with open(folder + "/module_0001." + name, "w") as file:
                file.write(name + "}}")
        time.sleep(600)
    print('""', flush=True)
"""
    monkeypatch.setattr(compiler, "_CHILD", child)
    with compiler.Compilers(240.0) as compilers:
        dumps = compilers.compile(Program(product(8, 8, 8), [], [], [], []), "v5e:1x1", tmp_path, deep=False)
    assert (dumps.schedule, dumps.assignment) == (f"{compiler.SCHEDULED}}}", f"{compiler.ASSIGNMENT}}}")
    assert (dumps.code, dumps.out_of_memory) == ("", "")


@needs_libtpu
@pytest.mark.parametrize(("size", "fits"), [(512, True), (40960, False)])
def test_verdict(size: int, fits: bool, tmp_path: Path) -> None:
    """A step of a small model fits a v5e; one with 134 GB of weights, gradients and states does not."""
    script, out, page = tmp_path / "train.py", tmp_path / "out.json", tmp_path / "report.html"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torchtpu", "preflight", "--json", str(out), "--html", str(page), str(script)]
    finished = subprocess.run([*command, str(size)], capture_output=True, text=True, timeout=300)
    found = json.loads(out.read_text())
    assert finished.returncode == 0, finished.stderr
    assert found["fits"] is fits, found
    parts = dict(found["bytes"])
    total = parts.pop("total")
    assert abs(sum(parts.values()) - total) <= 0.01 * total
    assert parts["parameters"] + parts["gradients"] >= 2 * (8 * size**2) * 4
    if fits:
        low, high = found["step_seconds"]
        assert 0 < low <= high
        assert found["owners"][0]["name"]
        assert found["throughput"]["per_second"] == pytest.approx([32 / high, 32 / low])
        assert all(share >= 0.95 for share in found["attributed"].values()), found["attributed"]
    assert "<html" in page.read_text()


@needs_libtpu
def test_batches_and_suggestions(tmp_path: Path) -> None:
    script, out = tmp_path / "train.py", tmp_path / "out.json"
    script.write_text(SCRIPT.replace("32,", "int(sys.argv[2]),"))
    command = [sys.executable, "-m", "torchtpu", "preflight", "--json", str(out), "--batch", "512,4096"]
    finished = subprocess.run([*command, str(script), "2048", "{batch}"], capture_output=True, text=True, timeout=600)
    found = json.loads(out.read_text())
    assert finished.returncode == 0, finished.stderr
    (small, large) = found["what_if"]
    assert (small["batch"], large["batch"]) == (512, 4096)
    assert small["bytes"] < large["bytes"]
    assert small["step_seconds"] == pytest.approx(found["step_seconds"])
    (suggestion,) = found["suggestions"]
    assert "bfloat16" in suggestion["what"]
    assert suggestion["gain"] >= 0.02
    assert suggestion["line"].startswith(str(script))
