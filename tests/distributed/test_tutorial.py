"""The scripts of docs/tutorials/distributed.md, and of examples/distributed, as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.distributed.launch import ROOT, python, torchrun

TUTORIAL = (ROOT / "docs/tutorials/distributed.md").read_text()


def losses_of(folder: Path) -> dict[str, list[float]]:
    """The losses that each script prints, when it is started as the page says."""
    scripts = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TUTORIAL, re.DOTALL)
    for name, text in scripts:
        (folder / name).write_text(text)
    found = {}
    for name, _ in scripts:
        (command,) = re.findall(rf"^    (.*\b{name})$", TUTORIAL, re.MULTILINE)
        launcher, *arguments = shlex.split(command)
        paths = [str(folder / each) if each == name else each for each in arguments]
        if launcher == "torchrun":
            count = int(paths[paths.index("--nproc-per-node") + 1])
            finished = torchrun(paths[2:], count)
        else:
            finished = python(paths)
        assert finished.returncode == 0, finished.stderr
        found[name] = [float(loss) for loss in re.findall(r"loss ([\d.]+)", finished.stdout)]
    return found


def test_each_script_of_the_tutorial_prints_the_same_losses(tmp_path: Path) -> None:
    found = losses_of(tmp_path)
    assert set(found) == {"one.py", "ddp.py", "fsdp.py", "mesh.py"}
    for losses in found.values():
        assert losses == pytest.approx(found["one.py"], abs=2e-4)
        assert len(losses) == 4
        assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize(
    ("script", "ranks"),
    [
        # The tutorial's scripts do the same in `make test`.
        pytest.param("data_parallel.py --epochs 4", 2, marks=pytest.mark.slow),
        pytest.param("mesh.py --tensor-parallel 2", 4, marks=pytest.mark.slow),
        ("pipeline.py", 2),
    ],
)
def test_examples(script: str, ranks: int) -> None:
    name, *options = script.split()
    finished = torchrun([f"examples/distributed/{name}", *options], ranks)
    assert finished.returncode == 0, finished.stdout + finished.stderr


def test_the_demo(tmp_path: Path) -> None:
    small = ["--compare", "--steps", "6", "--layers", "2", "--width", "32", "--batch-size", "4"]
    finished = torchrun(["examples/distributed/sharded_gpt.py", *small, "--output", str(tmp_path / "curves.png")])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (tmp_path / "curves.png").stat().st_size > 1000
