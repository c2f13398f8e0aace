"""accelerate, and the Trainer of transformers, under torchrun. `make test-libraries` installs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.launch import torchrun
from tests.helpers import check_python

pytest.importorskip("accelerate", reason="accelerate is not installed: make test-libraries")
pytest.importorskip("transformers", reason="transformers is not installed: make test-libraries")

SCRIPT = str(Path(__file__).with_name("accelerate_ranks.py"))


def _found(how: str, folder: Path, **environment: str) -> list[dict[str, Any]]:
    folder.mkdir()
    finished = torchrun([SCRIPT, how, str(folder)], **environment)
    assert finished.returncode == 0, finished.stderr
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.parametrize(
    ("how", "kind"),
    [("ddp", "DistributedDataParallel"), ("fsdp2", "FSDPSequential"), ("trainer", "DistributedDataParallel")],
)
def test_ranks_train_together(how: str, kind: str, tmp_path: Path) -> None:
    found = _found(how, tmp_path / "tpu", ACCELERATE_TORCH_DEVICE="tpu")
    # accelerate shards on no CPU: there the same training is DDP's.
    on_cpu = _found("ddp" if how == "fsdp2" else how, tmp_path / "cpu", ACCELERATE_USE_CPU="true")
    assert [each["device"] for each in found] == [torch.device("tpu", rank) for rank in range(2)]
    assert {each["kind"] for each in found} == {kind}
    for rank in range(2):
        torch.testing.assert_close(found[rank]["losses"], on_cpu[0]["losses"], rtol=1e-3, atol=1e-4)
    for name, weight in on_cpu[0]["weights"].items():
        torch.testing.assert_close(found[0]["weights"][name], weight, rtol=1e-3, atol=1e-4)


def test_a_script_for_the_cpu_stays_there(tmp_path: Path) -> None:
    """torchtpu is installed, and nothing names its device. accelerate's barrier gives the number of a device."""
    found = _found("ddp", tmp_path / "found", ACCELERATE_USE_CPU="true")
    assert {each["device"].type for each in found} == {"cpu"}


def test_a_batch_that_does_not_fit_is_made_smaller(device: torch.device) -> None:
    from accelerate.utils import find_executable_batch_size

    tried = []

    @find_executable_batch_size(starting_batch_size=8)
    def train(batch_size: int) -> int:
        tried.append(batch_size)
        if batch_size > 3:
            torch.empty(10**12 * batch_size, device=device)
        return batch_size

    assert train() < 4
    assert tried[0] == 8


PLACED = """
import torch
from accelerate import dispatch_model, infer_auto_device_map
from accelerate.utils import get_balanced_memory

def placed(**options):
    model = torch.nn.Sequential(*(torch.nn.Linear(100, 100) for _ in range(4)))
    places = infer_auto_device_map(model, get_balanced_memory(model, **options))
    x = torch.randn(2, 100)
    expected = model(x)
    torch.testing.assert_close(dispatch_model(model, places, force_hooks=True)(x).cpu(), expected)
    return set(map(str, places.values()))
"""


@pytest.mark.parametrize("count", ["1", "2"])
def test_a_model_is_placed_on_the_devices(count: str) -> None:
    code = f"""{PLACED}
assert placed() == {{str(index) for index in range({count})}}
assert placed(max_memory={{0: "100KB", "cpu": "1GB"}}) == {{"0", "cpu"}}
"""
    printed = check_python(code, ACCELERATE_TORCH_DEVICE="tpu", TORCHTPU_NUM_DEVICES=count)
    assert "is not available" not in printed


def test_a_model_stays_on_the_cpu_without_the_variable() -> None:
    check_python(f"{PLACED}assert placed() == {{'cpu'}}")
