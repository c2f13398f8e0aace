"""The effects of an import, errors where torchtpu cannot work, and `python -m torchtpu info`.

Each test runs Python in another process, because this one has imported torchtpu.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torchtpu

from tests.helpers import check_started_python, start_python

NO_AUTOLOAD = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
PACKAGES = Path(torchtpu.__file__).parent.parent

REPLACED_METHOD = ["torch.Tensor.__dlpack_device__", "torch.utils.dlpack.ReadOnlyTensorWrapper._DLPACK_ALLOWED"]

# Prints the number of functions, classes and class members of torch, and those that an import of torchtpu replaces.
REPLACED = """
import inspect, sys
import torch, torch._dynamo, torch.utils.data

def contents():
    found = {}
    for name, module in list(sys.modules.items()):
        if name != "torch" and not name.startswith("torch."):
            continue
        for key, value in list(vars(module).items()):
            if callable(value):
                found[f"{name}.{key}"] = value
            if inspect.isclass(value) and value.__module__ == name:
                found.update({f"{name}.{key}.{inner}": each for inner, each in list(vars(value).items())})
    return found

first = contents()
# PyTorch's own function to name a device replaces the printing of two enumerations each time.
torch.utils.rename_privateuse1_backend("tpu")
before = {name: value for name, value in contents().items() if first.get(name) is value}
import torchtpu
after = contents()
print(len(before))
for name, value in before.items():
    if after.get(name) is not value:
        print(name)
"""


def test_import_prints_nothing_and_opens_nothing() -> None:
    code = """
import sys, torch
torch.manual_seed(1)
import torchtpu
assert not torch.tpu.is_initialized()
assert "torchtpu.graphs" not in sys.modules
assert "torchtpu.pallas" not in sys.modules
assert torchtpu.pallas is torchtpu.tpu.pallas
"""
    finished = start_python(code)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_import_torch_is_enough_and_the_first_use_prints_nothing() -> None:
    code = """
import torch
x = torch.ones(2, 2, device="tpu", requires_grad=True)
(x @ x).sum().backward()
print(x.grad.tolist())
"""
    finished = start_python(code)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "[[4.0, 4.0], [4.0, 4.0]]\n", "")


def test_exit_right_after_backward() -> None:
    # On one core, autograd's device thread is usually not done with a graph when `backward()` returns.
    code = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import sys, torch
children = []
for attempt in range(3):
    child = os.fork()
    if child == 0:
        x = torch.randn(8, 8, device="tpu", requires_grad=True)
        (x @ x).sum().backward()
        sys.exit()
    children.append(child)
assert [os.waitpid(child, 0)[1] for child in children] == [0] * 3
"""
    finished = start_python(code)
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")


def test_import_replaces_one_method_in_torch() -> None:
    """The one that `torchtpu/dlpack.py` explains, and the list of methods in which PyTorch looks it up."""
    count, *replaced = check_started_python(REPLACED, **NO_AUTOLOAD).split()
    assert int(count) > 10_000
    assert sorted(replaced) == REPLACED_METHOD


def test_without_autoload() -> None:
    code = """
import torch
assert not hasattr(torch, "tpu")
import torchtpu
print((torch.ones(2, device="tpu") + 1).tolist())
"""
    assert check_started_python(code, **NO_AUTOLOAD) == "[2.0, 2.0]\n"


# ---- where it cannot work --------------------------------------------------------------------------------------


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A copy of the packages without the extension."""
    for package in ("torchtpu", "torchtpu_autoload"):
        shutil.copytree(PACKAGES / package, tmp_path / package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
    return tmp_path


def run_broken(folder: Path, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs code that finds the packages in the folder, however torchtpu is installed here."""
    return start_python(f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}", **environment)


def test_torch_is_usable_without_the_extension(broken: Path) -> None:
    finished = run_broken(broken, "import torch; print((torch.ones(2) + 1).tolist())")
    assert finished.stdout == "[2.0, 2.0]\n"
    assert finished.stderr.count("RuntimeWarning") == 1
    assert 'torch.device("tpu") is not available' in finished.stderr
    assert "make build" in finished.stderr


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_import_torchtpu_says_that_the_extension_is_missing(broken: Path, autoload: str) -> None:
    for first in ("", "import torch\n"):
        code = f"import warnings; warnings.simplefilter('ignore')\n{first}import torchtpu"
        finished = run_broken(broken, code, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)
        assert finished.returncode == 1
        last = finished.stderr.splitlines()[-1]
        assert last.startswith("ImportError: torchtpu's extension is not built"), finished.stderr


def test_extension_built_for_another_torch(broken: Path) -> None:
    (broken / "torchtpu" / "_C.py").write_text("def torch_version():\n    return '2.3.1'\n")
    finished = run_broken(broken, "import torch; print(torch.ones(2).tolist())\nimport torchtpu")
    assert finished.stdout == "[1.0, 1.0]\n"
    assert "RuntimeWarning" in finished.stderr
    last = finished.stderr.splitlines()[-1]
    assert last.startswith("ImportError: torchtpu was built for torch 2.3.1 and finds torch 2."), finished.stderr


def test_extension_with_symbols_of_another_torch(broken: Path) -> None:
    (broken / "torchtpu" / "_C.py").write_text("raise ImportError('undefined symbol: _ZN3c10')\n")
    finished = run_broken(broken, "import torch; print(torch.ones(2).tolist())\nimport torchtpu")
    assert finished.stdout == "[1.0, 1.0]\n"
    assert "ImportError: torchtpu was built for another torch and finds torch 2." in finished.stderr


def test_slot_taken_by_another_package() -> None:
    code = """
import torch
torch.utils.rename_privateuse1_backend("other")
import torchtpu
"""
    finished = start_python(code, **NO_AUTOLOAD)
    assert 'the package behind torch.device("other")' in finished.stderr.splitlines()[-1]
    assert finished.returncode == 1


# ---- python -m torchtpu ----------------------------------------------------------------------------------------


def info(*arguments: str) -> str:
    command = [sys.executable, "-m", "torchtpu", "info", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout


def test_info_as_json() -> None:
    facts = json.loads(info("--json"))
    assert facts["torchtpu"] == torchtpu.__version__
    assert facts["torch"] == torch.__version__
    assert {"torch", "built_for_torch", "python", "plugin", "platform", "pjrt_api", "cache_folder"} <= facts.keys()
    assert Path(facts["plugin"]).is_file()
    assert len(facts["devices"]) == len(facts["memory"]) >= 1
    assert all(each["total"] > 0 for each in facts["memory"])
    assert facts["memory"][0]["device"] == "tpu:0"


def test_info_for_people() -> None:
    text = info()
    assert "cache_folder" in text
    assert "tpu:0: " in text


def test_info_without_a_plugin() -> None:
    command = [sys.executable, "-m", "torchtpu", "info", "--json"]
    code = f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)"
    finished = start_python(code, TORCHTPU_PLUGIN="/nowhere/plugin.so")
    assert finished.returncode == 1
    assert "/nowhere/plugin.so" in json.loads(finished.stdout)["error"]
