"""Snapshots of memory, in the format of `torch.cuda.memory`: https://pytorch.org/memory_viz shows them as pictures.

The plugin owns the allocator and does not report on it. So each storage is a segment of its own with one block, and a
storage counts from the call that makes it, also where the device computes its value later.
"""

from __future__ import annotations

import atexit
import pickle
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

from torchtpu import _C
from torchtpu.tpu.devices import Device, device_count, get_device_index
from torchtpu.tpu.lazy import is_initialized

CONTEXTS = (None, "state", "alloc", "all")


@cache
def _history() -> dict[str, Any]:
    history = _C.memory_history()
    # Storages that are released after the interpreter's end have no lines.
    atexit.register(history["end"])
    return history


def _record_memory_history(
    enabled: Literal["state", "all"] | bool | None = "all",
    context: Literal["state", "alloc", "all"] | None = "all",
    stacks: Literal["python", "all"] = "all",
    max_entries: int = sys.maxsize,
    device: Device = None,
    clear_history: bool = False,
    **_others: Any,
) -> None:
    """Begins to record which lines of Python make and release storages, on all devices, or ends it.

    Arguments are those of `torch.cuda.memory._record_memory_history`.
        enabled: None ends the recording and forgets it. "state" only keeps the stacks of live storages, "all" keeps
            each allocation and release.
        context: whose stacks are kept: None for none, "state" and "alloc" for allocations, "all" also for releases.
        stacks: taken as in CUDA's; stacks are those of Python.
        max_entries: how many allocations and releases are kept, the last ones.
        clear_history: forgets what was recorded before.

    Raises ValueError for other values.
    """
    if enabled in (None, False):
        _history()["end"]()
        return
    if enabled not in (True, "state", "all"):
        raise ValueError(f'expected enabled to be None, "state" or "all", got {enabled!r}')
    if context not in CONTEXTS:
        raise ValueError(f'expected context to be None, "state", "alloc" or "all", got {context!r}')
    if stacks not in ("python", "all"):
        raise ValueError(f'expected stacks to be "python" or "all", got {stacks!r}')
    get_device_index(device)
    most = 0 if enabled == "state" else max_entries
    _history()["begin"](context is not None, context == "all", most, clear_history)


def _snapshot(device: Device = None, **_others: Any) -> dict[str, Any]:
    """The live storages of all devices and, if `_record_memory_history` was called, what was recorded since."""
    get_device_index(device)
    events, made = _history()["snapshot"]()
    number = device_count() if is_initialized() else 0
    traces: list[list[dict[str, Any]]] = [[] for _ in range(number)]
    for index, *event in events:
        traces[index] += _entries(*event)
    live = [(index, address, size) for index in range(number) for address, size in _C.live_storages(index)]
    segments = [_segment(*storage, made.get(storage[1], [])) for storage in sorted(live)]
    return {"segments": segments, "device_traces": traces, "allocator_settings": {}, "external_annotations": []}


def _dump_snapshot(filename: str | Path = "dump_snapshot.pickle", **_others: Any) -> None:
    """Writes `_snapshot()` to a file, as a pickle."""
    Path(filename).write_bytes(pickle.dumps(_snapshot()))


def memory_snapshot(mempool_id: Any = None) -> list[dict[str, Any]]:
    """The live storages of all devices, each as a segment of its own, in the format of `torch.cuda.memory_snapshot`.

    There are no memory pools. So none has a storage if `mempool_id` is given.
    """
    return _snapshot()["segments"] if mempool_id is None else []


def _entries(action: str, address: int, size: int, time_us: int, frames: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An event in the words of CUDA's allocator, which has two for a release."""
    where = "device_free" if action == "oom" else "addr"
    entry = {"action": action, where: address, "size": size, "stream": 0, "time_us": time_us, "frames": frames}
    requested = [{**entry, "action": "free_requested"}] if action == "free_completed" else []
    return [*requested, entry]


def _segment(device: int, address: int, size: int, frames: list[dict[str, Any]]) -> dict[str, Any]:
    block = {"address": address, "size": size, "requested_size": size, "state": "active_allocated", "frames": frames}
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "allocated_size": size,
        "active_size": size,
        "requested_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": frames,
        "blocks": [block],
    }
