#!/usr/bin/env python3
"""Trains the character GPT of char_gpt.py with fully sharded parameters (FSDP2) over several processes, beside one
process.

    torchrun --nproc-per-node 2 examples/distributed/sharded_gpt.py --compare

Each process has a part of each parameter, of its gradient and of the optimizer's state, and a part of each batch. With
--compare the first process then trains the same model by itself on the whole batches, and both loss curves are drawn:
they are the same but for rounding.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn import functional as F
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[1]))
from char_gpt import CharGPT, load_text


def draw_batches(data: Tensor, steps: int, batch_size: int, context: int) -> list[Tensor]:
    """The whole batches of all steps; each process takes its rows."""
    generator = torch.Generator().manual_seed(1)
    window = torch.arange(context + 1)
    begins = torch.randint(len(data) - context - 1, (steps, batch_size, 1), generator=generator)
    return [data[begin + window] for begin in begins]


def train(
    model: nn.Module, batches: list[Tensor], learning_rate: float, group: dist.ProcessGroup | None
) -> list[float]:
    """Trains on the rows of this process where there is a group. Returns the loss of each step over the whole batch."""
    device = next(model.parameters()).device
    rank, ranks = (group.rank(), group.size()) if group else (0, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    losses = []
    with tqdm(batches, unit="step", file=sys.stdout, disable=rank != 0) as progress:
        for batch in progress:
            rows = batch.chunk(ranks)[rank].to(device)
            optimizer.zero_grad(set_to_none=True)
            logits = model(rows[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            loss = loss.detach()
            if group:
                dist.all_reduce(loss, dist.ReduceOp.AVG, group)
            losses.append(loss)
            if len(losses) % 10 == 0:
                progress.set_postfix(loss=f"{loss.item():.3f}")
    return [loss.item() for loss in losses]


def draw_curves(path: Path, curves: dict[str, list[float]]) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for (name, losses), style in zip(curves.items(), ("-", "--"), strict=False):
        axes.plot(losses, style, label=name)
    axes.set(xlabel="step", ylabel="loss")
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, bbox_inches="tight")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train a character GPT with FSDP2 under torchrun.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--device", default="tpu", help="where to train: tpu or cpu")
    parser.add_argument("--mode", choices=["debug", "strict", "fused"], default="fused", help="on a tpu only")
    parser.add_argument("--steps", type=int, default=150, help="training steps")
    parser.add_argument("--batch-size", type=int, default=16, help="sequences per step, over all processes")
    parser.add_argument("--context", type=int, default=64, help="characters per sequence")
    parser.add_argument("--width", type=int, default=128, help="width of the model")
    parser.add_argument("--layers", type=int, default=4, help="transformer blocks")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--compare", action="store_true", help="train by one process too, and draw both loss curves")
    parser.add_argument("--output", type=Path, default=Path("build/demo/sharded_gpt.png"), help="where the curves go")
    options = parser.parse_args()

    if options.device == "tpu":
        torch.tpu.eager_mode = options.mode
    dist.init_process_group()
    rank, ranks = dist.get_rank(), dist.get_world_size()
    text = load_text()
    alphabet = sorted(set(text))
    number = {character: index for index, character in enumerate(alphabet)}
    data = torch.tensor([number[character] for character in text])
    batches = draw_batches(data, options.steps, options.batch_size, options.context)

    def new_model() -> CharGPT:
        torch.manual_seed(0)
        return CharGPT(len(alphabet), options.context, options.width, options.layers, heads=4).to(options.device)

    model = new_model()
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    start = time.perf_counter()
    losses = train(model, batches, options.learning_rate, dist.group.WORLD)
    if rank == 0:
        own = sum(each.to_local().numel() for each in model.parameters() if isinstance(each, DTensor))
        whole = sum(parameter.numel() for parameter in model.parameters())
        print(f"{ranks} processes: {options.steps} steps in {time.perf_counter() - start:.1f} s, loss {losses[-1]:.4f}")
        print(f"the first process has {own:,} of {whole:,} parameters")
    difference = 0.0
    if options.compare and rank == 0:
        start = time.perf_counter()
        alone = train(new_model(), batches, options.learning_rate, None)
        print(f"1 process: {options.steps} steps in {time.perf_counter() - start:.1f} s, loss {alone[-1]:.4f}")
        difference = max(abs(a - b) / b for a, b in zip(losses, alone, strict=True))
        draw_curves(options.output, {f"{ranks} processes": losses, "1 process": alone})
        print(f"the losses differ by {difference:.2e} at most; the curves are in {options.output}")
    dist.barrier()
    dist.destroy_process_group()
    return int(difference > 0.05)


if __name__ == "__main__":
    sys.exit(main())
