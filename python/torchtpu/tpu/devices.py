"""The number of devices, and the current device."""

from __future__ import annotations

from typing import Any

import torch

from torchtpu import _C
from torchtpu.tpu.lazy import _lazy_init

Device = int | str | torch.device | None

_is_found = False


def get_device_index(device: Device, optional: bool = True) -> int:
    """The index of a device given as a number, a string, a `torch.device` or None.

    Without an index, or with None, this is the current device. With `optional=False` the index is required.
    """
    if isinstance(device, bool) or not isinstance(device, int | str | torch.device | None):
        raise TypeError(f"expected an int, a str or a torch.device, got {type(device).__name__}")
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = torch.device(device)
    if device is not None and device.type != "tpu":
        raise ValueError(f"Expected a tpu device, but got: {device}")
    if device is not None and device.index is not None:
        return device.index
    if not optional:
        raise ValueError(f"Expected a torch.device with a specified index or an integer, but got: {device}")
    return _C.current_device()


def is_available() -> bool:
    """Whether a plugin is installed, so that tensors can be created on the device. Opens no plugin and never
    raises."""
    # Cached: the search reads folders, and PyTorch calls this a thousand times while it compiles a graph.
    global _is_found
    _is_found = _is_found or _C.is_available()
    return _is_found


def device_count() -> int:
    """The number of devices; 0 if there is no plugin. On a TPU's host with several chips this does not open libtpu,
    so that processes which are started afterwards can use the chips.

    Under torchrun each process uses one chip of a TPU's host. It shows as many devices as there are local ranks, and
    can use the one whose number is its own local rank, so that `torch.device("tpu", local_rank)` is its chip.
    """
    return _C.device_count() if is_available() else 0


def current_device() -> int:
    """The index of the current device of this thread."""
    return _C.current_device()


def set_device(device: Device) -> None:
    """Sets the current device of this thread. Prefer `with torch.tpu.device(...)`."""
    index = get_device_index(device)
    if index >= 0:
        if not _C.may_be_one_of_several():
            _lazy_init()
        _C.set_device(index)


def synchronize(device: Device = None) -> None:
    """Runs recorded calls and waits until all work queued on a device (by default the current one) is done."""
    _C.synchronize(get_device_index(device))


def _exchange_device(device: int) -> int:
    """Sets the current device and returns the previous one. A negative index changes nothing and returns -1."""
    if device < 0:
        return -1
    previous = _C.current_device()
    if device != previous:
        _C.set_device(device)
    return previous


def _maybe_exchange_device(device: int) -> int:
    return _exchange_device(device)


class device:
    """Context manager that sets the current device. None or a negative index changes nothing."""

    def __init__(self, device: Device) -> None:
        self.idx = -1 if device is None else get_device_index(device)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *exception: object) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class device_of(device):
    """Context manager that sets the current device to that of a tensor or storage, if it is on a tpu."""

    def __init__(self, obj: Any) -> None:
        on_tpu = obj.device.type == "tpu"
        super().__init__(obj.get_device() if on_tpu else -1)
