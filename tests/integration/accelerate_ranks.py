"""Trains with accelerate on each rank of torchrun, and writes what came of it: `HOW FOLDER`.

`HOW` is "ddp", "fsdp2", or "trainer" for the Trainer of transformers.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def with_accelerator(how: str, folder: Path) -> dict[str, Any]:
    """Trains, saves the state, trains one step more, and goes back to the state."""
    plugin = None
    if how == "fsdp2":
        plugin = FullyShardedDataParallelPlugin(
            fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=1, state_dict_type="SHARDED_STATE_DICT"
        )
    accelerator = Accelerator(fsdp_plugin=plugin)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 1))
    x = torch.randn(32, 4)
    data = DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=4, shuffle=True)
    model, optimizer, data = accelerator.prepare(model, torch.optim.AdamW(model.parameters(), 0.1), data)
    losses = []

    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        with accelerator.accumulate(model):
            loss = (model(x) - y).square().mean()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        losses.append(accelerator.gather(loss.detach().reshape(1)).mean().item())

    for batch in data:
        step(*batch)
    accelerator.save_state(str(folder / "state"))
    accelerator.wait_for_everyone()
    step(*batch)
    accelerator.load_state(str(folder / "state"))
    step(*batch)
    weights = {name: value.cpu() for name, value in accelerator.get_state_dict(model).items()}
    accelerator.end_training()
    return {"device": accelerator.device, "losses": losses, "kind": type(model).__name__, "weights": weights}


def with_trainer(folder: Path) -> dict[str, Any]:
    from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=64, max_position_embeddings=64))
    tokens = torch.randint(0, 64, (32, 16))
    data = [{"input_ids": each, "labels": each} for each in tokens]
    arguments = TrainingArguments(
        str(folder), num_train_epochs=1, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True
    )
    trainer = Trainer(model=model, args=arguments, train_dataset=data)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return {"device": arguments.device, "losses": losses, "kind": type(trainer.model_wrapped).__name__, "weights": {}}


def main(how: str, folder: str) -> None:
    place = Path(folder)
    found = with_trainer(place) if how == "trainer" else with_accelerator(how, place)
    torch.save(found, place / f"{os.environ['RANK']}.pt")


if __name__ == "__main__":
    main(*sys.argv[1:])
