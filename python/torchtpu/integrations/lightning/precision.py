"""Mixed precision on the device. Lightning's plugins autocast for CUDA if they do not know the accelerator."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from torchtpu.integrations.lightning.packages import fabric, pytorch

_fabric: Any = fabric.plugins.precision
_pytorch: Any = pytorch.plugins.precision


def on_tpu(plugin: Any) -> Any:
    """The plugin of the same precision whose autocast is the device's."""
    if isinstance(plugin, _fabric.MixedPrecision | _pytorch.MixedPrecision) and plugin.device != "tpu":
        scaler = torch.amp.GradScaler("tpu") if plugin.precision == "16-mixed" else None
        return type(plugin)(plugin.precision, "tpu", scaler)
    sharded = {_pytorch.FSDPPrecision: FSDPPrecision, _fabric.FSDPPrecision: FabricFSDPPrecision}.get(type(plugin))
    return plugin if sharded is None else sharded(plugin.precision)


class _Sharded:
    """Autocast and the scaler of gradients that are sharded."""

    precision: str
    scaler: Any

    def __init__(self, precision: str) -> None:
        super().__init__(precision)  # type: ignore[call-arg]
        if self.scaler is not None:
            from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

            self.scaler = ShardedGradScaler("tpu")

    def forward_context(self) -> AbstractContextManager[Any]:
        if "mixed" in self.precision:
            return torch.autocast("tpu", torch.bfloat16 if self.precision == "bf16-mixed" else torch.float16)
        return super().forward_context()  # type: ignore[misc]


class FSDPPrecision(_Sharded, _pytorch.FSDPPrecision):
    """Of FSDPStrategy in a Trainer."""


class FabricFSDPPrecision(_Sharded, _fabric.FSDPPrecision):
    """Of FSDPStrategy in Fabric."""
