"""Properties of a device."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from torchtpu import _C
from torchtpu.tpu.devices import Device, get_device_index


@dataclasses.dataclass(frozen=True)
class DeviceProperties:
    """The properties of a device, from the plugin."""

    name: str
    total_memory: int
    multi_processor_count: int
    """A GPU's multiprocessors, or a TPU's cores; 1 if the plugin does not tell."""
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)
    """The plugin's other attributes, under its own names."""


def get_device_properties(device: Device = None) -> DeviceProperties:
    """Name, memory, core count and other attributes of a device."""
    rest = dict(_C.device_properties(get_device_index(device)))
    return DeviceProperties(
        name=rest.pop("name"),
        total_memory=rest.pop("total_memory"),
        multi_processor_count=rest.get("core_count", rest.get("num_cores", 1)),
        attributes=rest,
    )


def get_device_name(device: Device = None) -> str:
    """The name of a device, such as "TPU v5e"."""
    return _C.device_name(get_device_index(device))


def get_amp_supported_dtype() -> list[torch.dtype]:
    """The dtypes that `torch.autocast("tpu")` may use."""
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Always: bfloat16 is the native dtype of the hardware, and every plugin computes with it."""
    return True
