"""Scripts as users write them run to their end, and the lines that read are listed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.forks import server
from tests.helpers import check_python
from tests.preflight.recorded import RECORD, record

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


PIECES = """
import torch
from torch import nn

model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 256), nn.Tanh()) for _ in range(40)]).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    loss = model(torch.randn(512, 256).to("tpu")).square().mean()
    print(loss.item())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_a_step_of_pieces(tmp_path: Path) -> None:
    """A chunk that runs as several programs: beside each one lies what the programs before have made, not what those
    after it will make. Each value is known by its module."""
    script = tmp_path / "train.py"
    script.write_text(PIECES)
    code = RECORD.replace(
        "print(",
        "print(json.dumps([[(*storage, size) for storage, size in each.others] for each in found.programs]))\nprint(",
        1,
    )
    of_programs = json.loads(check_python(code, str(script)).splitlines()[-2])
    assert len(of_programs) > 2
    activations = [sum(size for role, *_, size in each if role == "activations") for each in of_programs]
    assert len({size for size in activations if size}) > 1, activations
    # Only the values that the script uploads have no name.
    unnamed = [sum(size for _, name, _, size in each if not name) for each in of_programs]
    assert max(unnamed) <= 512 * 256 * 4, unnamed


BOXES = """
import torch

boxes = torch.tensor([[0.0, 0.0, 4.0, 4.0], [2.0, 2.0, 3.0, 5.0]]).to("tpu")
if (boxes[:, 2:] <= boxes[:, :2]).any():
    raise ValueError("a box has no area")
assert (boxes[:, 2:] >= boxes[:, :2]).all()
scores = torch.nn.Linear(4, 1).to("tpu")(boxes)[:, 0]
chosen = torch.where(scores > 0)[0]
mask = torch.zeros(2, device="tpu")
mask[chosen] = 1
print(mask.sum().item())
"""


def test_data_that_a_script_checks(tmp_path: Path) -> None:
    """A small tensor that is uploaded has its own values, and no index that was invented is out of range."""
    script = tmp_path / "boxes.py"
    script.write_text(BOXES)
    assert record(tmp_path, script=script)["failure"] == ""


INDICES = """
import torch

model = torch.nn.Linear(5, 5).to("tpu")
y = model(torch.randn(6, 5).to("tpu"))
y[torch.where(y[:, 0] > 0)[0][0]]
y[torch.where(y[:, 0] < 0)[0][0].item()]
y[tuple((y > 0).nonzero()[0].tolist())]
y[(y[:, 0] < 0).nonzero()[0]]
y[y[:, 0] < 0][0]
y.masked_select(y > 100)[0]
y[y.argmax(0)[0].item()]
y[y[:, 0].sort(descending=True).indices[-1]]
y[:1][y[:1, 0].argsort()[0]]
y[:1][torch.randperm(1, device="tpu")[0]]
y[:1][y[:1, 0].median(0).indices]
y[y[:, 0].kthvalue(2).indices]
y[torch.unique(torch.randint(3, (6,), device="tpu"), return_counts=True)[1][0] - 1]
# What is not finite is not there, and data that is uploaded is as it is.
assert y[torch.isnan(y)].numel() == 0
assert y[torch.isinf(y).any(1)].numel() == 0
assert y[~torch.isfinite(y)].numel() == 0
labels = torch.tensor([4, 5, 6, 5]).to("tpu")
assert len((labels == 5).nonzero()) == 2
assert len(labels[labels > 6]) == 0
# Each expert takes its part of the tokens, and all tokens are taken.
experts = y.argmax(-1)
counts = torch.bincount(experts, minlength=4)
assert counts.tolist() == [2, 2, 1, 1]
assert [len(part) for part in y[experts.argsort()].split(counts.tolist())] == [2, 2, 1, 1]
for expert in range(4):
    chosen = torch.where(experts == expert)[0]
    y.index_add(0, chosen, model(y[chosen]))
"""


def test_indices_that_data_decides(tmp_path: Path) -> None:
    """A mask that was invented selects all, so that its first element exists, and each index is in range."""
    script = tmp_path / "indices.py"
    script.write_text(INDICES)
    assert record(tmp_path, script=script)["failure"] == ""


SIZES = """
import torch

model = torch.nn.Linear(5, 5).to("tpu")
y = model(torch.randn(6, 5).to("tpu"))
rows = y[y[:, 0] > 0]
length = y.sum().item()
print("SIZES", len(rows), length)
"""


@pytest.mark.parametrize(
    ("given", "sizes"), [([], "6"), (["sizes.py:6=2", "sizes.py:7=9"], "2 9.0"), (["sizes.py:6=50"], "6")]
)
def test_what_a_line_is_assumed_to_give(tmp_path: Path, given: list[str], sizes: str) -> None:
    """A size that data decides, and what is read, are as the user says, and at most as large as possible. Both lines
    are listed."""
    script = tmp_path / "sizes.py"
    script.write_text(SIZES)
    options = [word for each in given for word in ("--assume", each)]
    command = ["-m", "torchtpu", "preflight", *options, "--json", "-", str(script)]
    printed = server().run(command, dict(os.environ)).stdout
    line, _, report = printed.partition("\n")
    assert line.startswith(f"SIZES {sizes}")
    assert {each["line"].rpartition(":")[2] for each in json.loads(report)["assumed"]} == {"6", "7"}


DETECTION = """
import math, sys
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_320_fpn

model = fasterrcnn_mobilenet_v3_large_320_fpn(weights=None, weights_backbone=None, num_classes=5).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), lr=0.005, momentum=0.9)
for number in range(3):
    images = [torch.rand(3, 160, 160).to("tpu") for _ in range(2)]
    corner = torch.rand(number + 1, 2) * 100
    boxes = torch.cat([corner, corner + 20 + torch.rand(number + 1, 2) * 40], 1)
    targets = [{"boxes": boxes.to("tpu"), "labels": torch.randint(1, 5, (number + 1,)).to("tpu")} for _ in images]
    losses = model(images, targets)
    loss = sum(losses.values())
    if not math.isfinite(loss.item()):
        sys.exit(f"the loss is {loss.item()}")
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def test_detection(tmp_path: Path) -> None:
    """A detector of torchvision checks its boxes, and matches them with anchors, in each step."""
    pytest.importorskip("torchvision")
    script = tmp_path / "detect.py"
    script.write_text(DETECTION)
    found = record(tmp_path, script=script)
    assert (found["steps"], found["failure"]) == (3, "")
    assert ["parameters", "roi_heads.box_head.fc6.weight"] in found["inputs"]  # type: ignore[operator]
