"""Opens the plugin at the first use of the device, and then runs the calls that were queued before."""

from __future__ import annotations

import threading
from collections.abc import Callable

from torchtpu import _C

_lock = threading.RLock()
_queued: list[Callable[[], None]] = []
_ready = False


def is_initialized() -> bool:
    """Whether this process has used the device, or has set the current one.

    As with CUDA, to count the devices is no use: `DeviceMesh` sets the device of a process that has not chosen one.
    """
    return _ready and not _C.in_bad_fork()


def is_open() -> bool:
    """Whether the plugin is open."""
    return not _C.in_bad_fork() and _C.is_initialized()


def _is_in_bad_fork() -> bool:
    """Whether this process was forked from a process that had opened the plugin, which cannot be used here."""
    return _C.in_bad_fork()


def init() -> None:
    """Opens the plugin now instead of at the first use of the device."""
    _lazy_init()


def _lazy_init() -> None:
    """PyTorch calls this before it first creates a tensor on the device."""
    global _ready
    if _C.in_bad_fork():
        raise RuntimeError(
            "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the 'spawn' "
            "start method"
        )
    if _ready:
        return
    with _lock:
        if _ready:
            return
        _C.open_devices()
        # A queued call may call this again, so it must find the queue empty and the plugin open.
        _ready = True
        calls, _queued[:] = list(_queued), []
        for call in calls:
            call()


def _lazy_call(call: Callable[[], None]) -> None:
    """Runs `call` now if the device is in use, else at its first use."""
    with _lock:
        if not _ready:
            _queued.append(call)
            return
    _lazy_init()
    call()
