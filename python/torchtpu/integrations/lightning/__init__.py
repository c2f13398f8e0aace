"""Lightning on the device: an accelerator and strategies, registered under new names for Trainer and for Fabric.

    import torchtpu.integrations.lightning
    trainer = lightning.pytorch.Trainer(accelerator="torchtpu", strategy="torchtpu", precision="bf16-mixed")

Lightning's accelerator "tpu" belongs to torch_xla, and its connector chooses torch_xla's strategy for that name. With
an unknown accelerator, the strategy "auto" trains on the CPU, and mixed precision autocasts for CUDA. Therefore the
user gives both: the accelerator lists the devices, the strategy moves the model to one and autocasts there.

| strategy | what it does |
|---|---|
| "torchtpu" | one device, in one process |
| "torchtpu_ddp" | DistributedDataParallel under torchrun, with a process for each device |
| "torchtpu_fsdp" | FullyShardedDataParallel, likewise |
| "torchtpu_model_parallel" | Lightning's ModelParallelStrategy: `fully_shard` and tensor parallelism, likewise |

`Trainer(strategy=TpuStrategy())` needs no `accelerator`. The package may be `lightning` or `pytorch_lightning`.
"""

from __future__ import annotations

from torchtpu.integrations.lightning.accelerator import ACCELERATOR, TpuAccelerator
from torchtpu.integrations.lightning.packages import fabric, pytorch
from torchtpu.integrations.lightning.strategies import (
    OF_FABRIC,
    OF_TRAINER,
    FabricTpuDDPStrategy,
    FabricTpuFSDPStrategy,
    FabricTpuModelParallelStrategy,
    FabricTpuStrategy,
    TpuDDPStrategy,
    TpuFSDPStrategy,
    TpuModelParallelStrategy,
    TpuStrategy,
)

__all__ = [
    "FabricTpuDDPStrategy",
    "FabricTpuFSDPStrategy",
    "FabricTpuModelParallelStrategy",
    "FabricTpuStrategy",
    "TpuAccelerator",
    "TpuDDPStrategy",
    "TpuFSDPStrategy",
    "TpuModelParallelStrategy",
    "TpuStrategy",
]


def register() -> None:
    """Registers the accelerator and the strategies by name. A second call has no effect."""
    for accelerators in (pytorch.accelerators.AcceleratorRegistry, fabric.accelerators.ACCELERATOR_REGISTRY):
        if ACCELERATOR not in accelerators:
            accelerators.register(ACCELERATOR, TpuAccelerator, description="torchtpu's devices")
    trainers, fabrics = pytorch.strategies.StrategyRegistry, fabric.strategies.STRATEGY_REGISTRY
    for strategies, registry in ((OF_TRAINER, trainers), (OF_FABRIC, fabrics)):
        for strategy in strategies:
            if strategy.strategy_name not in registry:
                registry.register(strategy.strategy_name, strategy, description=strategy.__name__)


register()
