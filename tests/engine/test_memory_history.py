"""The history of memory, in the format that PyTorch's viewer reads."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.cuda import _memory_viz

from tests.helpers import check_python


@pytest.fixture(autouse=True)
def _ends() -> Iterator[None]:
    yield
    torch.tpu.memory._record_memory_history(None)


def entries(snapshot: dict[str, Any], action: str, size: int) -> list[dict[str, Any]]:
    return [entry for entry in snapshot["device_traces"][0] if (entry["action"], entry["size"]) == (action, size)]


def make(elements: int) -> torch.Tensor:
    return torch.ones(elements, device="tpu")


def test_allocations_and_releases_have_the_lines_that_made_them() -> None:
    torch.tpu.memory._record_memory_history()
    kept, gone = make(1001), make(1002)
    del gone
    snapshot = torch.tpu.memory._snapshot()
    (made,) = entries(snapshot, "alloc", 4004)
    assert [frame["name"] for frame in made["frames"][:2]] == [
        "make",
        test_allocations_and_releases_have_the_lines_that_made_them.__name__,
    ]
    assert made["frames"][0]["filename"] == __file__
    assert made["addr"] == kept.untyped_storage().data_ptr()
    (released,) = entries(snapshot, "free_completed", 4008)
    assert released["addr"] == entries(snapshot, "alloc", 4008)[0]["addr"]
    assert released["time_us"] >= made["time_us"]
    assert entries(snapshot, "free_requested", 4008)
    assert not entries(snapshot, "free_completed", 4004)


def test_live_storages_are_segments() -> None:
    before = make(1003)
    torch.tpu.memory._record_memory_history()
    after = make(1004)
    segments = {segment["address"]: segment for segment in torch.tpu.memory_snapshot()}
    assert sum(segment["total_size"] for segment in segments.values()) == torch.tpu.memory_allocated()
    assert segments[before.untyped_storage().data_ptr()]["frames"] == []
    (block,) = segments[after.untyped_storage().data_ptr()]["blocks"]
    assert (block["size"], block["state"], block["frames"][0]["name"]) == (4016, "active_allocated", "make")


def test_storages_that_change_their_size_move() -> None:
    torch.tpu.memory._record_memory_history(context="alloc")
    tensor = make(1005)
    tensor.resize_(1006)
    snapshot = torch.tpu.memory._snapshot()
    (released,) = entries(snapshot, "free_completed", 4020)
    assert released["frames"] == [], "only allocations keep their stack"
    (made,) = entries(snapshot, "alloc", 4024)
    assert made["addr"] == tensor.untyped_storage().data_ptr() != released["addr"]


def test_gradients_and_compiled_programs_are_recorded() -> None:
    weight = torch.ones(1007, device="tpu", requires_grad=True)
    torch.tpu.memory._record_memory_history()
    weight.square().sum().backward()
    torch.compile(lambda x: torch.cat([x, x]))(weight.detach())
    snapshot = torch.tpu.memory._snapshot()
    assert weight.grad is not None
    grads = [
        entry for entry in entries(snapshot, "alloc", 4028) if entry["addr"] == weight.grad.untyped_storage().data_ptr()
    ]
    assert len(grads) == 1
    assert len(entries(snapshot, "alloc", 8056)) == 1


def test_an_error_of_memory_is_recorded() -> None:
    torch.tpu.memory._record_memory_history()
    with pytest.raises(torch.OutOfMemoryError):
        torch.empty(1 << 50, device="tpu")
    (error,) = entries(torch.tpu.memory._snapshot(), "oom", 1 << 52)
    assert 0 < error["device_free"] <= torch.tpu.mem_get_info()[1]
    assert error["frames"][0]["filename"] == __file__


def test_the_last_events_are_kept() -> None:
    torch.tpu.memory._record_memory_history(max_entries=4)
    tensors = [make(elements) for elements in range(1, 8)]
    (trace,) = torch.tpu.memory._snapshot()["device_traces"]
    assert [entry["size"] for entry in trace] == [16, 20, 24, 28]
    torch.tpu.memory._record_memory_history("state", clear_history=True)
    assert torch.tpu.memory._snapshot()["device_traces"] == [[]]
    tensors.append(make(1008))
    snapshot = torch.tpu.memory._snapshot()
    assert snapshot["device_traces"] == [[]]
    assert [segment["frames"][0]["name"] for segment in snapshot["segments"] if segment["total_size"] == 4032] == [
        "make"
    ]
    torch.tpu.memory._record_memory_history(None)
    assert not any(segment["frames"] for segment in torch.tpu.memory_snapshot())


def test_the_viewer_of_pytorch_reads_the_file(tmp_path: Path) -> None:
    torch.tpu.memory._record_memory_history()
    tensor = make(1 << 20)
    torch.tpu.memory._dump_snapshot(str(tmp_path / "memory.pickle"))
    snapshot = pickle.loads((tmp_path / "memory.pickle").read_bytes())
    assert "4.0MiB" in _memory_viz.trace(snapshot)
    assert "MiB" in _memory_viz.segsum(snapshot)
    assert "<script" in _memory_viz.trace_plot(snapshot)
    assert tensor.sum().item() == 1 << 20


def test_a_process_ends_while_memory_is_recorded() -> None:
    program = """
import torch
torch.tpu.memory._record_memory_history()
kept = [torch.ones(n, device="tpu").square_() for n in range(1, 50)]
print(len(torch.tpu.memory._snapshot()["segments"]))
"""
    assert check_python(program).split() == ["49"]


@pytest.mark.parametrize("arguments", [{"enabled": "some"}, {"context": "some"}, {"stacks": "some"}])
def test_other_words_are_refused(arguments: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected .* got 'some'"):
        torch.tpu.memory._record_memory_history(**arguments)  # type: ignore[arg-type]
