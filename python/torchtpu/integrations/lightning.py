"""Lightning on the device: an accelerator and strategies, registered under new names.

    import torchtpu.integrations.lightning
    trainer = lightning.pytorch.Trainer(accelerator="torchtpu", strategy="torchtpu", precision="bf16-mixed")

Lightning's accelerator "tpu" belongs to torch_xla, and its connector chooses torch_xla's strategy for that name. With
an unknown accelerator, the strategy "auto" trains on the CPU, and mixed precision autocasts for CUDA. Therefore the
user gives both: the accelerator lists the devices, the strategy moves the model to one and autocasts there.

| strategy | what it does |
|---|---|
| "torchtpu" | one device, in one process |
| "torchtpu_ddp" | DistributedDataParallel under torchrun, with a process for each device |

`Trainer(strategy=TpuStrategy())` needs no `accelerator`. The package may be `lightning` or `pytorch_lightning`.
"""

from __future__ import annotations

from typing import Any

import torch

try:
    from lightning.fabric.utilities.exceptions import MisconfigurationException
    from lightning.pytorch.accelerators import Accelerator, AcceleratorRegistry
    from lightning.pytorch.plugins.precision import MixedPrecision
    from lightning.pytorch.strategies import DDPStrategy, SingleDeviceStrategy, StrategyRegistry
except ModuleNotFoundError:
    from lightning_fabric.utilities.exceptions import MisconfigurationException
    from pytorch_lightning.accelerators import Accelerator, AcceleratorRegistry
    from pytorch_lightning.plugins.precision import MixedPrecision
    from pytorch_lightning.strategies import DDPStrategy, SingleDeviceStrategy, StrategyRegistry

__all__ = ["TpuAccelerator", "TpuDDPStrategy", "TpuStrategy"]

ACCELERATOR = "torchtpu"
STRATEGY = "torchtpu"
DDP_STRATEGY = "torchtpu_ddp"


class TpuAccelerator(Accelerator):
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


class _OnTpu:
    """What both strategies override: the accelerator, and the device of autocast."""

    _accelerator: Any
    _precision_plugin: Any

    @property
    def accelerator(self) -> Any:
        return self._accelerator

    @accelerator.setter
    def accelerator(self, accelerator: Any) -> None:
        if not isinstance(accelerator, TpuAccelerator):
            raise MisconfigurationException(
                f"give accelerator={ACCELERATOR!r} beside a strategy of torchtpu, not {type(accelerator).__name__}"
            )
        self._accelerator = accelerator

    @property
    def precision_plugin(self) -> Any:
        return super().precision_plugin  # type: ignore[misc]

    @precision_plugin.setter
    def precision_plugin(self, plugin: Any) -> None:
        # Lightning's plugin autocasts for CUDA if it does not know the accelerator.
        if isinstance(plugin, MixedPrecision) and plugin.device != "tpu":
            scaler = torch.amp.GradScaler("tpu") if plugin.precision == "16-mixed" else None
            plugin = MixedPrecision(plugin.precision, "tpu", scaler)
        self._precision_plugin = plugin


class TpuStrategy(_OnTpu, SingleDeviceStrategy):
    """Trains on one device: the given one, else the one in `Trainer(devices=...)`."""

    strategy_name = STRATEGY

    def __init__(
        self,
        device: torch.device | str | None = None,
        accelerator: Any = None,
        checkpoint_io: Any = None,
        precision_plugin: Any = None,
    ) -> None:
        super().__init__(device or "tpu:0", accelerator or TpuAccelerator(), checkpoint_io)
        if precision_plugin is not None:
            self.precision_plugin = precision_plugin
        self._given = [self._root_device] if device is not None else []

    # The connector sets this attribute to the devices of `Trainer(devices=...)` if the strategy has it and it is empty.
    @property
    def parallel_devices(self) -> list[torch.device]:
        return self._given

    @parallel_devices.setter
    def parallel_devices(self, devices: list[torch.device]) -> None:
        if len(devices) > 1:
            raise MisconfigurationException(
                f"strategy={STRATEGY!r} trains on one device, and devices={len(devices)} was given: give "
                f"strategy={DDP_STRATEGY!r}, under torchrun"
            )
        self._root_device = devices[0]


class TpuDDPStrategy(_OnTpu, DDPStrategy):
    """Trains a copy of the model in each process of torchrun, and averages the gradients."""

    strategy_name = DDP_STRATEGY

    def __init__(self, **kwargs: Any) -> None:
        precision_plugin = kwargs.pop("precision_plugin", None)
        super().__init__(accelerator=kwargs.pop("accelerator", None) or TpuAccelerator(), **kwargs)
        if precision_plugin is not None:
            self.precision_plugin = precision_plugin

    def determine_ddp_device_ids(self) -> None:
        """None, because device_ids need CUDA and a CUDA stream."""
        return None

    def _get_process_group_backend(self) -> str:
        return self._process_group_backend or "tpu"


def register() -> None:
    """Registers the accelerator and the strategies by name. A second call has no effect."""
    if ACCELERATOR not in AcceleratorRegistry:
        AcceleratorRegistry.register(ACCELERATOR, TpuAccelerator, description="torchtpu's devices")
    for strategy in (TpuStrategy, TpuDDPStrategy):
        if strategy.strategy_name not in StrategyRegistry:
            StrategyRegistry.register(strategy.strategy_name, strategy, description=strategy.__name__)


register()
