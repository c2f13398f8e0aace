"""What the command line refuses, and scripts and chips that fail."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from torchtpu.__main__ import main
from torchtpu.preflight.chips import find

from tests.helpers import start_python
from tests.preflight.recorded import needs_libtpu


def test_unknown_chip() -> None:
    finished = start_python("import torch; torch.ones(1, device='tpu')", TORCHTPU_DRY="v9:1x1")
    assert finished.returncode != 0
    assert "TORCHTPU_DRY=v9:1x1 names no chip" in finished.stderr
    with pytest.raises(ValueError, match="there is no chip 'v9'"):
        find("v9:1x1")


def test_used_process() -> None:
    """The device of a process that has used it stays what it is."""
    code = (
        "import torch, torchtpu\ntorch.ones(1, device='tpu')\n"
        "try:\n    torchtpu.preflight(print)\nexcept RuntimeError as error:\n    print(error)\n"
    )
    assert "has not used the device" in start_python(code).stdout


FUNCTION = """
import torch, torchtpu

def train(width):
    model = torch.nn.Linear(width, width, device="tpu")
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    while True:
        model(torch.ones(8, width, device="tpu")).sum().backward()
        optimizer.step()

try:
    torchtpu.preflight(train, 128, chip="v9")
except ValueError as error:
    print(error)
report = torchtpu.preflight(train, 128, chip="v6e", steps=2)
print(report)
print(report.as_dict()["fits"])
"""


@needs_libtpu
def test_function() -> None:
    """A function with an argument instead of a script, also after a call with a wrong chip."""
    finished = start_python(FUNCTION)
    assert finished.returncode == 0, finished.stderr
    lines = finished.stdout.splitlines()
    assert lines[0].startswith("there is no chip 'v9'")
    assert lines[-1] == "True"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--chip", "v9", "script.py"], "there is no chip 'v9'"),
        (["missing.py"], "there is no script missing.py"),
        (["--steps", "0", __file__], "--steps must be at least 1"),
        (["--batch", "1,x", __file__], "--batch takes sizes such as 1,2,4, or largest, not 1,x"),
        (
            ["--assume", "train.py=3", __file__],
            "--assume takes a line and a number such as train.py:31=512, not train.py=3",
        ),
        (["--what-if", "v5e,v9", __file__], "there is no chip 'v9'"),
        (["--chip", "v5e:4x4", "--mesh", "fsdp=8", __file__], "has 8 ranks, and v5e:4x4 has 16 devices"),
        (["--chip", "v5e:4", __file__], "a topology is a chip and its sizes, such as v5e:4x4, not v5e:4"),
    ],
)
def test_wrong_options(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", *arguments]) == 2
    assert message in capsys.readouterr().err


FAILING = """
import sys
import torch

model = torch.nn.Linear(8, 8).to("tpu")
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for number in range(2):
    loss = model(torch.ones(4, 8).to("tpu")).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
END
"""


@pytest.mark.parametrize(
    ("end", "status", "failure"),
    [
        ("raise ValueError('no such folder')", 1, "ValueError: no such folder"),
        ("sys.exit(3)", 1, "the script ended with 3"),
        ("sys.exit(0)", 0, None),
    ],
)
@needs_libtpu
def test_a_script_that_ends(end: str, status: int, failure: str | None, tmp_path: Path) -> None:
    """The exit status says that a script has failed, after the report of what it did before."""
    script, out = tmp_path / "train.py", tmp_path / "out.json"
    script.write_text(FAILING.replace("END", end))
    command = [sys.executable, "-m", "torchtpu", "preflight", "--no-suggestions", "--json", str(out), str(script)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert finished.returncode == status, finished.stderr
    found = json.loads(out.read_text())
    assert (found["failure"], found["steps"], found["fits"]) == (failure, 2, True)
    assert [each["reads"] for each in found["assumed"]] == [2]
    assert (f"the script failed: {failure}" in finished.stdout) is bool(status)


UNREAD = """
import torch
x = torch.randn(4, 4, device="tpu")
del x
"""


def test_a_script_without_a_program_says_why(tmp_path: Path) -> None:
    """Nothing reads the tensor, so nothing computes it."""
    script, out = tmp_path / "unread.py", tmp_path / "out.json"
    script.write_text(UNREAD)
    command = [sys.executable, "-m", "torchtpu", "preflight", "--chip", "v5e", "--json", str(out), str(script)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert finished.returncode == 1, finished.stderr
    assert "not judged: no program ran on the device." in finished.stdout
    assert "keep the result" in json.loads(out.read_text())["problems"][0]
