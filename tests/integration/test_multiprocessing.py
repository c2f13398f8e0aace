"""tpu tensors that processes send each other."""

from __future__ import annotations

import pickle
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import moved


def sent(value: Any) -> Any:
    """What another process receives, in this process."""
    return pickle.loads(bytes(ForkingPickler.dumps(value)))


VALUES = {
    "whole": lambda d: torch.arange(6.0, device=d).reshape(2, 3),
    "part": lambda d: torch.arange(8, device=d)[3:],
    "steps": lambda d: torch.arange(8.0, device=d)[::2],
    "transposed": lambda d: torch.arange(6.0, device=d).reshape(2, 3).t(),
    "expanded": lambda d: torch.ones(1, device=d).expand(3),
    "empty": lambda d: torch.empty(0, 2, device=d),
    "0-d": lambda d: torch.tensor(3.0, dtype=torch.bfloat16, device=d),
    "conjugate": lambda d: torch.tensor([1 + 2j], device=d).conj(),
    "sparse": lambda d: torch.eye(3, device=d).to_sparse(),
    "compressed": lambda d: torch.eye(3, device=d).to_sparse_csr(),
    "jagged": lambda d: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=d, layout=torch.jagged),
    "blocks of columns": lambda d: torch.eye(4, device=d).to_sparse_bsc((2, 2)),
    "repeated": lambda d: torch.sparse_coo_tensor([[1, 1]], torch.tensor([2.0, 3.0]), (3,)).to(d),
    "nested": lambda d: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device=d),
    "list": lambda d: [torch.ones(2, device=d), torch.zeros(1, dtype=torch.bool, device=d), 3],
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str, device: torch.device, mode: str) -> None:
    make = VALUES[name]
    received, on_device, expected = sent(make(device)), make(device), make("cpu")
    if name == "list":
        assert received[0].device == on_device[0].device
    else:
        assert (received.device, received.layout) == (on_device.device, on_device.layout)
    if name in ("jagged", "nested"):
        received, expected = received.unbind(), expected.unbind()
    torch.testing.assert_close(moved(received, "cpu"), expected, rtol=0, atol=0)


def test_processes_share_nothing(device: torch.device) -> None:
    tensor = torch.zeros(2, device=device)
    received = sent(tensor)
    received.add_(1)
    assert tensor.tolist() == [0, 0]
    assert received.tolist() == [1, 1]


def test_gradients(device: torch.device) -> None:
    leaf = torch.ones(2, device=device, requires_grad=True)
    assert sent(leaf).requires_grad
    assert sent(leaf.detach()).requires_grad is False
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        sent(leaf * 2)


def test_a_storage_is_not_sent(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match="Cannot pickle tpu storage; try pickling a tpu tensor instead"):
        sent(torch.ones(2, device=device).untyped_storage())


def test_tensors_of_the_cpu_are_shared_as_before() -> None:
    tensor = torch.zeros(2)
    sent(tensor).add_(1)
    assert tensor.tolist() == [1, 1]


def test_a_queue_and_arguments(tmp_path: Path) -> None:
    # A spawned process imports the file of its function.
    script = tmp_path / "script.py"
    script.write_text("""
import torch, torch.multiprocessing as mp

def work(model, weights, questions, answers):
    assert isinstance(model.weight, torch.nn.Parameter) and model.weight is model.tied and model.weight.requires_grad
    for x in iter(questions.get, None):
        answers.put((x.device, model(x).detach() + weights))

if __name__ == "__main__":
    context = mp.get_context("spawn")
    model = torch.nn.Linear(3, 2, device="tpu")
    model.tied = model.weight
    weights = torch.arange(4.0, device="tpu")[2:]
    questions, answers = context.Queue(), context.Queue()
    process = context.Process(target=work, args=(model, weights, questions, answers))
    process.start()
    for size in (1, 4):
        x = torch.randn(size, 3, device="tpu")
        questions.put(x)
        device, answer = answers.get(timeout=120)
        assert device == x.device == answer.device
        torch.testing.assert_close(answer, model(x).detach() + weights)
    questions.put(None)
    process.join(120)
    print(process.exitcode)
""")
    finished = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert finished.stdout == "0\n", finished.stderr
    assert finished.stderr.count("a parameter on a tpu device is sent to another process as a copy") == 1
