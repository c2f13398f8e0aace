"""Trains with Lightning on each rank of torchrun, and writes what came of it: `ACCELERATOR STRATEGY FOLDER`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
import torchtpu.integrations.lightning  # noqa: F401 (registers the names)
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset


class Regression(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.losses: list[float] = []

    def training_step(self, batch: Any, index: int) -> Tensor:
        loss = (self.layer(batch[0]) - batch[1]).square().mean()
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.1)


def main(accelerator: str, strategy: str, folder: str) -> None:
    pl.seed_everything(0)
    x = torch.randn(32, 4)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4)
    model = Regression()
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator=accelerator, strategy=strategy, devices=2, max_epochs=2, enable_checkpointing=False, **quiet
    )
    trainer.fit(model, data)
    found = {"device": str(trainer.strategy.root_device), "losses": model.losses}
    torch.save({**found, "weight": model.layer.weight.detach().cpu()}, Path(folder) / f"{trainer.global_rank}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
