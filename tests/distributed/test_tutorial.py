"""The scripts of docs/tutorials/distributed.md, and of examples/distributed, as they stand."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.distributed.launch import ROOT, torchrun
from tests.distributed.ranks import values_on_ranks
from tests.helpers import check_python

# The other scripts run on forks, which take no seconds to import.
WITH_TORCHRUN = "ddp.py"

TUTORIAL = (ROOT / "docs/tutorials/distributed.md").read_text()


def losses_of(folder: Path) -> dict[str, list[float]]:
    """The losses that each script prints, on as many ranks as the page starts."""
    scripts = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", TUTORIAL, re.DOTALL)
    for name, text in scripts:
        (folder / name).write_text(text)
    found = {}
    for name, _ in scripts:
        (command,) = re.findall(rf"^    (.*\b{name})$", TUTORIAL, re.MULTILINE)
        launcher, *arguments = shlex.split(command)
        if launcher == "python":
            assert arguments == [name]
            printed = check_python((folder / name).read_text())
        else:
            option, count, script = arguments
            assert (launcher, option, script) == ("torchrun", "--nproc-per-node", name)
            printed = _printed(str(folder / name), int(count), with_torchrun=name == WITH_TORCHRUN)
        found[name] = [float(loss) for loss in re.findall(r"loss ([\d.]+)", printed)]
    return found


def _printed(script: str, ranks: int, *arguments: str, with_torchrun: bool = False) -> str:
    if not with_torchrun:
        return values_on_ranks(ranks, "tests.distributed.scripts", "printed", script, *arguments)[0]
    finished = torchrun([script, *arguments], ranks)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


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
    _printed(f"examples/distributed/{name}", ranks, *options)


@pytest.mark.nightly
def test_the_demo(tmp_path: Path) -> None:
    small = ["--compare", "--steps", "6", "--layers", "2", "--width", "32", "--batch-size", "4"]
    finished = torchrun(["examples/distributed/sharded_gpt.py", *small, "--output", str(tmp_path / "curves.png")])
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (tmp_path / "curves.png").stat().st_size > 1000
