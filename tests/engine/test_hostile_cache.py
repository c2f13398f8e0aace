"""A cache folder and bundles that were damaged or changed, or whose writers were killed: never another result."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.engine.cache_folders import command, entries, train
from tests.helpers import run_python
from tests.settings import SEED

# Compiles small programs until it is killed; argv: the seed of their sizes.
COMPILES = """
import random, sys, torch
torch.tpu.eager_mode = "strict"
draw = random.Random(int(sys.argv[1]))
print("ready", flush=True)
while True:
    size = draw.randrange(2, 9000)
    assert (torch.ones(size, device="tpu") * 2 + 1).sum().item() == 3 * size
"""
# Where the format is in an entry, behind the word "torchtpu".
FORMAT = slice(8, 12)


@pytest.mark.nightly
def test_processes_that_are_killed_while_they_write(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    variables = {**os.environ, "TORCHTPU_CACHE_DIR": str(tmp_path)}
    for trial in range(20):
        arguments = [sys.executable, "-c", COMPILES, str(1000 * SEED + trial)]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=variables)
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        time.sleep(draw.uniform(0.02, 1.5))
        assert process.poll() is None, process.stderr.read()
        process.send_signal(signal.SIGKILL)
        assert process.stderr.read() == ""
        process.wait()
    whole = entries(tmp_path)
    assert whole
    assert command(tmp_path, "export", tmp_path / "bundle").stdout.startswith(f"wrote {len(whole)} programs")


def damaged(bundle: bytes, draw: random.Random) -> bytes:
    """The bundle with one of the damages that files suffer."""
    at = draw.randrange(len(bundle))
    match draw.randrange(6):
        case 0:
            return bundle[:at]
        case 1:
            return bundle[:at] + bytes([bundle[at] ^ (1 << draw.randrange(8))]) + bundle[at + 1 :]
        case 2:
            return bundle[:at] + draw.randbytes(draw.randrange(1, 4000)) + bundle[at:]
        case 3:
            return bundle[:at] + bytes(min(4096, len(bundle) - at)) + bundle[at + 4096 :]
        case 4:
            # The length of the first entry.
            first = bundle.index(b"\n") + 1
            return bundle[:first] + draw.randbytes(8) + bundle[first + 8 :]
        case _:
            return draw.randbytes(at)


@pytest.mark.parametrize("trials", [4, pytest.param(60, marks=pytest.mark.nightly)])
def test_damaged_bundles(trials: int, warm: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """What is intact is imported, the rest is refused, and a training has the same losses to the last bit."""
    draw = random.Random(SEED)
    whole, folder, bundle = tmp_path / "whole", tmp_path / "folder", tmp_path / "bundle"
    command(warm[0], "export", whole)
    for _ in range(trials):
        bundle.write_bytes(damaged(whole.read_bytes(), draw))
        imported = command(folder, "import", bundle)
        assert imported.returncode in (0, 1)
        assert "Traceback" not in imported.stderr
        assert "panicked" not in imported.stderr
    answer, errors = train(folder)
    assert errors == ""
    assert answer["losses"] == warm[1]["losses"]


@pytest.mark.parametrize("kind", ["missing", "empty", "folder", "text"])
def test_what_is_no_bundle(kind: str, tmp_path: Path) -> None:
    bundle = tmp_path / "bundle"
    match kind:
        case "empty":
            bundle.touch()
        case "folder":
            bundle.mkdir()
        case "text":
            bundle.write_text("torchtpu bundle 2\n" * 100)
    imported = command(tmp_path / "folder", "import", bundle)
    assert imported.returncode == 1
    assert str(bundle) in imported.stderr
    assert "Traceback" not in imported.stderr


def test_another_version_in_the_same_folder(warm: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """Its entries have another format and other names. Both versions go on, and the commands say what they can."""
    shutil.copytree(warm[0], tmp_path, dirs_exist_ok=True)
    for path in entries(tmp_path):
        content = bytearray(path.read_bytes())
        content[FORMAT] = (99).to_bytes(4, "little")
        other = path.with_name(path.name[::-1])
        other.write_bytes(content)
        other.chmod(0o600)
    count = warm[1]["compiles"]
    answer, errors = train(tmp_path)
    assert (answer["compiles"], answer["losses"], errors) == (0, warm[1]["losses"], "")
    assert len(entries(tmp_path)) == 2 * count
    for action in (["stats"], ["list"]):
        assert command(tmp_path, *action).returncode == 0
    assert command(tmp_path, "export", tmp_path / "bundle").stdout.startswith(f"wrote {count} programs")
    # An entry of another version under a name of this one costs a compile.
    for path in entries(tmp_path):
        content = bytearray(path.read_bytes())
        content[FORMAT] = (99).to_bytes(4, "little")
        path.write_bytes(content)
    answer, errors = train(tmp_path)
    assert (answer["compiles"], answer["losses"]) == (count, warm[1]["losses"])
    assert "it has another format" in errors
    assert command(tmp_path, "clear").stdout == f"removed {2 * count} programs\n"


@pytest.mark.parametrize("home", [None, "/proc"])
def test_a_user_without_a_home(home: str | None) -> None:
    code = """
import os
os.environ.pop("HOME", None)
if HOME: os.environ["HOME"] = HOME
for name in ("TORCHTPU_CACHE_DIR", "XDG_CACHE_HOME"): os.environ.pop(name, None)
import torch
print((torch.ones(3, device="tpu") * 2).sum().item())
""".replace("HOME:", f"{home!r}:").replace("= HOME", f"= {home!r}")
    finished = run_python(code)
    assert finished.stdout == "6.0\n", finished.stderr
    assert "Traceback" not in finished.stderr
