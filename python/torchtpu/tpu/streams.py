"""Streams and events.

A device has one queue, which runs in order. All streams of a device are names for this queue. Work on two streams is
never out of order and never concurrent; waiting for another stream costs nothing. Events are real: they tell when the
work queued before them was done.
"""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.tpu.devices import Device, get_device_index
from torchtpu.tpu.devices import device as device_context


class Stream(torch.Stream):
    """A name for the device's in-order queue."""

    def __new__(cls, device: Device = None, priority: int = 0, **identity: int) -> Stream:
        if identity:  # stream_id, device_index and device_type of an existing stream
            return super().__new__(cls, priority=priority, **identity)
        return super().__new__(cls, torch.device("tpu", get_device_index(device)), priority=priority)


class _EventType(type):
    """Makes every event of a tpu device an instance of `torch.tpu.Event`."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, torch.Event) and instance.device.type == "tpu"


class Event(metaclass=_EventType):
    """Marks when the work queued so far is done: a `torch.Event` of a tpu device.

    With `enable_timing`, `elapsed_time` gives the milliseconds between two events: time on the device if the
    plugin provides it, else between the moments at which the work was found done.
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
    """Context manager that sets the current stream of its device, and the current device. None changes nothing."""

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
    """Context manager that sets the current stream."""
    return StreamContext(stream)


def current_stream(device: Device = None) -> Stream:
    """The current stream of a device (by default the current device)."""
    return _as_ours(torch.accelerator.current_stream(get_device_index(device)))


def default_stream(device: Device = None) -> Stream:
    """The stream that is used unless another one is set."""
    index = get_device_index(device)
    now = torch.accelerator.current_stream(index)
    return Stream(stream_id=0, device_index=index, device_type=now.device_type)


def set_stream(stream: torch.Stream | None) -> None:
    """Sets the current stream. Prefer `with torch.tpu.stream(...)`."""
    if stream is not None:
        torch.accelerator.set_stream(stream)


def _as_ours(stream: torch.Stream) -> Stream:
    return Stream(stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type)
