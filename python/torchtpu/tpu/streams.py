"""Streams and events.

A device has one queue, and it runs in order: every stream of a device is that queue under another name. Work on two
streams is therefore never out of order, and never at the same time; waiting for another stream costs nothing and
changes nothing. Events are real: they tell when the work queued before them was done.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.tpu.devices import Device, get_device_index
from torchtpu.tpu.devices import device as device_context


class Stream(torch.Stream):
    """A name for the device's one in-order queue."""

    def __new__(cls, device: Device = None, priority: int = 0, **identity: int) -> Stream:
        if identity:  # stream_id, device_index and device_type of an existing stream
            return super().__new__(cls, priority=priority, **identity)
        return super().__new__(cls, torch.device("tpu", get_device_index(device)), priority=priority)


class _EventType(type):
    """Lets every event of a tpu device count as a `torch.tpu.Event`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class Event(metaclass=_EventType):
    """The moment at which the work queued so far is done: a `torch.Event` of a tpu device.

    With `enable_timing`, `elapsed_time` gives the milliseconds between two events: time on the device where the plugin
    tells it, else between the moments at which the work was seen to be done.
    """

    def __new__(  # type: ignore[misc]
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        device: Device = None,
    ) -> torch.Event:
        return torch.Event(
            torch.device("tpu", get_device_index(device)),
            enable_timing=enable_timing,
            blocking=blocking,
            interprocess=interprocess,
        )


class StreamContext:
    """Makes a stream the current one of its device, and its device the current one; None changes nothing."""

    def __init__(self, stream: torch.Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is None:
            return
        self._device = device_context(self.stream.device)
        self._device.__enter__()
        self._previous = current_stream(self.stream.device)
        set_stream(self.stream)

    def __exit__(self, *exception: Any) -> None:
        if self.stream is None:
            return
        set_stream(self._previous)
        self._device.__exit__(*exception)


def stream(stream: torch.Stream | None) -> StreamContext:
    """Context manager that makes a stream the current one."""
    return StreamContext(stream)


def current_stream(device: Device = None) -> Stream:
    """The stream that work on a device (the current one) goes to now."""
    return _as_ours(torch.accelerator.current_stream(get_device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that work goes to unless another was chosen."""
    index = get_device_index(device)
    now = torch.accelerator.current_stream(index)
    return Stream(stream_id=0, device_index=index, device_type=now.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Makes a stream the current one; prefer `with torch.tpu.stream(...)`."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def _as_ours(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
