"""Dynamo's interface of a device."""

from __future__ import annotations

from typing import Any

import torch
from torch._dynamo.device_interface import DeviceInterface

from torchtpu import _C, tpu
from torchtpu.tpu.devices import Device
from torchtpu.tpu.streams import Stream


class TpuInterface(DeviceInterface):
    """The device's module as a Dynamo device interface."""

    device = tpu.device
    Event = torch.Event
    Stream = Stream

    class Worker(DeviceInterface.Worker):
        """The same functions in a compile worker's process."""

        @staticmethod
        def set_device(device: int) -> None:
            tpu.set_device(device)

        @staticmethod
        def current_device() -> int:
            return tpu.current_device()

        @staticmethod
        def get_device_properties(device: Device = None) -> Any:
            return tpu.get_device_properties(device)

    current_device = staticmethod(tpu.current_device)
    set_device = staticmethod(tpu.set_device)
    device_count = staticmethod(tpu.device_count)
    is_available = staticmethod(tpu.is_available)
    stream = staticmethod(tpu.stream)
    current_stream = staticmethod(tpu.current_stream)
    set_stream = staticmethod(tpu.set_stream)
    synchronize = staticmethod(tpu.synchronize)
    exchange_device = staticmethod(tpu._exchange_device)
    maybe_exchange_device = staticmethod(tpu._maybe_exchange_device)
    memory_allocated = staticmethod(tpu.memory_allocated)
    get_device_properties = staticmethod(tpu.get_device_properties)

    @staticmethod
    def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
        tpu.set_stream(Stream(stream_id=stream_id, device_index=device_index, device_type=device_type))

    @staticmethod
    def get_raw_stream(device_idx: int) -> int:
        return tpu.current_stream(device_idx).stream_id

    @staticmethod
    def get_compute_capability(device: Device = None) -> str:
        return tpu.get_device_name(device)

    @staticmethod
    def is_bf16_supported(including_emulation: bool = False) -> bool:
        return True

    @classmethod
    def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
        return dtype in _HELD


# The dtypes of tensors on the device.
_HELD = frozenset(getattr(torch, name) for name, (_, is_held) in _C.scalar_types().items() if is_held)
