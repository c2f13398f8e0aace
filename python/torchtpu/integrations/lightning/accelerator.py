"""The accelerator: which devices there are."""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.integrations.lightning.packages import MisconfigurationException, pytorch

ACCELERATOR = "torchtpu"
STRATEGY = "torchtpu"
DDP_STRATEGY = "torchtpu_ddp"


class TpuAccelerator(pytorch.accelerators.Accelerator):
    """The devices of torchtpu."""

    def setup_device(self, device: torch.device) -> None:
        """Makes `device` the current device. Raises MisconfigurationException for a device of another type."""
        if device.type != "tpu":
            raise MisconfigurationException(
                f"the strategy has the device {device}: give strategy={STRATEGY!r} beside accelerator={ACCELERATOR!r}"
            )
        torch.accelerator.set_device_index(device.index or 0)

    def get_device_stats(self, device: Any) -> dict[str, Any]:
        """The counters of the device's memory, in bytes."""
        return torch.accelerator.memory_stats(device)

    def teardown(self) -> None:
        torch.accelerator.empty_cache()

    @staticmethod
    def parse_devices(devices: int | str | list[int]) -> list[int]:
        """The indices of the devices in `Trainer(devices=...)`: a count, -1 for all, or a list of indices, also as
        text. Raises MisconfigurationException if there are no such devices."""
        count = TpuAccelerator.auto_device_count()
        if isinstance(devices, str):
            parts = [int(part) for part in devices.split(",") if part.strip()]
            devices = parts if "," in devices else parts[0]
        indices = (
            list(devices) if isinstance(devices, list | tuple) else list(range(count if devices == -1 else devices))
        )
        if not indices or any(not 0 <= index < count for index in indices):
            raise MisconfigurationException(
                f"devices={devices!r} asks for devices {indices}, and this process has {count}. For several processes, "
                f"start the script with torchrun"
            )
        return indices

    @staticmethod
    def get_parallel_devices(devices: list[int]) -> list[torch.device]:
        return [torch.device("tpu", index) for index in devices]

    @staticmethod
    def auto_device_count() -> int:
        return torch.accelerator.device_count() if TpuAccelerator.is_available() else 0

    @staticmethod
    def is_available() -> bool:
        current = torch.accelerator.current_accelerator()
        return current is not None and current.type == "tpu" and torch.accelerator.is_available()

    @staticmethod
    def name() -> str:
        return ACCELERATOR
