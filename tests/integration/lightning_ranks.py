"""Trains with Lightning on each rank of torchrun, and writes what came of it.

`FRONT ACCELERATOR STRATEGY PRECISION FOLDER`. `FRONT` is "trainer" or "fabric".
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.fabric import Fabric
from torch import Tensor
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.data import DataLoader, TensorDataset
from torchtpu.integrations.lightning import FabricTpuModelParallelStrategy, TpuModelParallelStrategy


def data() -> DataLoader[Any]:
    x = torch.randn(32, 4)
    return DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)


class Regression(pl.LightningModule):
    def __init__(self, is_sharded: bool = False) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
        self.is_sharded = is_sharded
        self.losses: list[float] = []
        self.dtypes: set[torch.dtype] = set()
        self.has_autocast = False

    def configure_model(self) -> None:
        if self.is_sharded:
            shard(self.layers, self.device_mesh)

    def training_step(self, batch: Any, index: int) -> Tensor:
        found = self.layers(batch[0])
        self.dtypes.add(found.dtype)
        self.has_autocast = torch.is_autocast_enabled("tpu")
        loss = (found - batch[1]).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def shard(layers: torch.nn.Module, mesh: Any) -> torch.nn.Module:
    for layer in (layers[0], layers[2], layers):
        fully_shard(layer, mesh=mesh["data_parallel"])
    return layers


def whole(value: Tensor) -> Tensor:
    return (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu()


def in_trainer(folder: str, **how: Any) -> dict[str, Any]:
    is_sharded = how["strategy"] == "torchtpu_model_parallel"
    model = Regression(is_sharded)
    if is_sharded:
        strategy = TpuModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
        how = {"strategy": strategy, "precision": how["precision"]}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(devices=2, max_epochs=2, enable_checkpointing=False, **quiet, **how)
    trainer.fit(model, data())
    trainer.save_checkpoint(Path(folder) / "model.ckpt")
    weights = {name: whole(value) for name, value in trainer.strategy.lightning_module_state_dict().items()}
    found = {"rank": trainer.global_rank, "device": trainer.strategy.root_device, "losses": model.losses}
    return {**found, "dtypes": model.dtypes, "has_autocast": model.has_autocast, "weights": weights}


def in_fabric(folder: str, **how: Any) -> dict[str, Any]:
    if how["strategy"] == "torchtpu_model_parallel":
        strategy = FabricTpuModelParallelStrategy(shard, data_parallel_size=2, tensor_parallel_size=1)
        how = {"strategy": strategy, "precision": how["precision"]}
    fabric = Fabric(devices=2, **how)
    fabric.launch()
    model = Regression().layers
    model = fabric.setup_module(model)
    optimizer = fabric.setup_optimizers(torch.optim.SGD(model.parameters(), 0.1))
    losses, batches = [], fabric.setup_dataloaders(data())
    for epoch in range(2):
        if hasattr(batches.sampler, "set_epoch"):
            batches.sampler.set_epoch(epoch)
        for x, y in batches:
            optimizer.zero_grad()
            found = model(x)
            loss = (found - y).square().mean()
            fabric.backward(loss)
            optimizer.step()
            losses.append(loss.item())
    fabric.save(Path(folder) / "model.ckpt", {"model": model})
    # Fabric converts results to float32. The states of FSDP are sharded.
    return {"rank": fabric.global_rank, "device": fabric.device, "losses": losses}


def main(front: str, accelerator: str, strategy: str, precision: str, folder: str) -> None:
    pl.seed_everything(0)
    train = in_trainer if front == "trainer" else in_fabric
    found = train(folder, accelerator=accelerator, strategy=strategy, precision=precision)
    torch.save(found, Path(folder) / f"{found['rank']}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
