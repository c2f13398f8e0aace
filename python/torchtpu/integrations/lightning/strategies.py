"""The strategies, of Trainer and of Fabric: what they override in Lightning's.

| name | in a Trainer | in Fabric | Lightning's |
|---|---|---|---|
| "torchtpu" | TpuStrategy | FabricTpuStrategy | SingleDeviceStrategy |
| "torchtpu_ddp" | TpuDDPStrategy | FabricTpuDDPStrategy | DDPStrategy |
| "torchtpu_fsdp" | TpuFSDPStrategy | FabricTpuFSDPStrategy | FSDPStrategy |
| "torchtpu_model_parallel" | TpuModelParallelStrategy | FabricTpuModelParallelStrategy | ModelParallelStrategy |
"""

from __future__ import annotations

from typing import Any

import torch

from torchtpu.integrations.lightning.accelerator import ACCELERATOR, DDP_STRATEGY, STRATEGY, TpuAccelerator
from torchtpu.integrations.lightning.packages import MisconfigurationException, fabric, pytorch
from torchtpu.integrations.lightning.precision import on_tpu

_of_trainer: Any = pytorch.strategies
_of_fabric: Any = fabric.strategies


class _OnTpu:
    """The accelerator, and the device of autocast: `precision_plugin` in a Trainer, `precision` in Fabric."""

    _accelerator: Any
    _precision_plugin: Any
    _precision: Any

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
        self._precision_plugin = on_tpu(plugin)

    @property
    def precision(self) -> Any:
        return super().precision  # type: ignore[misc]

    @precision.setter
    def precision(self, plugin: Any) -> None:
        self._precision = on_tpu(plugin)


class _OneDevice(_OnTpu):
    """Trains on one device: the given one, else the one in `devices=...` of Trainer or Fabric."""

    strategy_name = STRATEGY
    _root_device: torch.device

    def __init__(
        self,
        device: torch.device | str | None = None,
        accelerator: Any = None,
        checkpoint_io: Any = None,
        **precision: Any,
    ) -> None:
        accelerator = accelerator or TpuAccelerator()
        super().__init__(device or "tpu:0", accelerator, checkpoint_io, **precision)  # type: ignore[call-arg]
        self._given = [self._root_device] if device is not None else []

    # The connector sets this attribute to the devices of `devices=...` if the strategy has it and it is empty.
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


class _EachRank(_OnTpu):
    """Trains on a device for each process of torchrun."""

    _process_group_backend: str | None

    def __init__(self, *args: Any, accelerator: Any = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.accelerator = accelerator or TpuAccelerator()

    def determine_ddp_device_ids(self) -> None:
        """None, because device_ids need CUDA and a CUDA stream."""
        return None

    _determine_ddp_device_ids = determine_ddp_device_ids

    def _get_process_group_backend(self) -> str:
        return self._process_group_backend or "tpu"


class TpuStrategy(_OneDevice, _of_trainer.SingleDeviceStrategy):
    """Of a Trainer: one device, in one process."""


class FabricTpuStrategy(_OneDevice, _of_fabric.SingleDeviceStrategy):
    """Of Fabric: one device, in one process."""


class TpuDDPStrategy(_EachRank, _of_trainer.DDPStrategy):
    """Of a Trainer: a copy of the model in each process, and averaged gradients."""

    strategy_name = DDP_STRATEGY


class FabricTpuDDPStrategy(_EachRank, _of_fabric.DDPStrategy):
    """Of Fabric: a copy of the model in each process, and averaged gradients."""

    strategy_name = DDP_STRATEGY


class TpuFSDPStrategy(_EachRank, _of_trainer.FSDPStrategy):
    """Of a Trainer: parameters, gradients and optimizer states are sharded (FullyShardedDataParallel)."""

    strategy_name = "torchtpu_fsdp"


class FabricTpuFSDPStrategy(_EachRank, _of_fabric.FSDPStrategy):
    """Of Fabric: parameters, gradients and optimizer states are sharded (FullyShardedDataParallel)."""

    strategy_name = "torchtpu_fsdp"


class TpuModelParallelStrategy(_EachRank, _of_trainer.ModelParallelStrategy):
    """Of a Trainer: the user's `configure_model` shards with `fully_shard` and DTensor."""

    strategy_name = "torchtpu_model_parallel"


class FabricTpuModelParallelStrategy(_EachRank, _of_fabric.ModelParallelStrategy):
    """Of Fabric: the user's function shards with `fully_shard` and DTensor."""

    strategy_name = "torchtpu_model_parallel"


OF_TRAINER = (TpuStrategy, TpuDDPStrategy, TpuFSDPStrategy, TpuModelParallelStrategy)
OF_FABRIC = (FabricTpuStrategy, FabricTpuDDPStrategy, FabricTpuFSDPStrategy, FabricTpuModelParallelStrategy)
