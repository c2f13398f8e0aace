#!/usr/bin/env python3
"""Trains a small convolutional network on the handwritten digits of scikit-learn.

The training loop is plain PyTorch; only the name of the device is different. On "tpu" it can run in each eager
mode, one after the other, and compare them.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

MODES = ("debug", "strict", "fused")


@dataclasses.dataclass
class Run:
    """The result of a training run."""

    name: str
    losses: list[float]
    seconds_per_step: float
    compiles: int | None
    accuracy: float


class DigitsNet(nn.Module):
    """Two convolutions and two linear layers, for 8x8 pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(64 * 4 * 4, 128),
            nn.ReLU(),
            nn.Dropout(0.25),
            nn.Linear(128, 10),
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images)


def load_data() -> tuple[TensorDataset, TensorDataset]:
    """The 1,797 digits; a quarter of them is held out."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)
    train, held_out = train_test_split(range(len(labels)), test_size=0.25, random_state=0, stratify=labels)
    return TensorDataset(images[train], labels[train]), TensorDataset(images[held_out], labels[held_out])


def train(name: str, device: torch.device, epochs: int, batch_size: int, seed: int) -> Run:
    """An ordinary training loop, then the accuracy on the held-out images."""
    torch.manual_seed(seed)
    training_data, held_out_data = load_data()
    loader = DataLoader(training_data, batch_size=batch_size, shuffle=True, drop_last=True)
    model = DigitsNet().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    criterion = nn.CrossEntropyLoss()
    compiles_before = count_compiles(device)

    losses: list[float] = []
    seconds: list[float] = []
    model.train()
    with tqdm(total=epochs * len(loader), desc=f"{name:>6}", unit="step", file=sys.stdout) as progress:
        for _ in range(epochs):
            for images, labels in loader:
                start = time.perf_counter()
                images, labels = images.to(device), labels.to(device)
                optimizer.zero_grad(set_to_none=True)
                loss = criterion(model(images), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())  # waits for the step
                seconds.append(time.perf_counter() - start)
                progress.set_postfix(loss=f"{losses[-1]:.4f}", refresh=False)
                progress.update()

    accuracy = evaluate(model, DataLoader(held_out_data, batch_size=150), device)
    compiles_after = count_compiles(device)
    return Run(
        name=name,
        losses=losses,
        # The second half, because the first steps compile.
        seconds_per_step=statistics.median(seconds[len(seconds) // 2 :]),
        compiles=None if compiles_before is None or compiles_after is None else compiles_after - compiles_before,
        accuracy=accuracy,
    )


@torch.no_grad()
def evaluate(model: nn.Module, loader: DataLoader[tuple[Tensor, ...]], device: torch.device) -> float:
    """The share of images that are classified correctly."""
    model.eval()
    correct = total = 0
    for images, labels in loader:
        guesses = model(images.to(device)).argmax(1)
        correct += int((guesses == labels.to(device)).sum().item())
        total += len(labels)
    return correct / total


def count_compiles(device: torch.device) -> int | None:
    """The number of programs that the device has compiled so far, if it counts them."""
    module = torch.get_device_module(device)
    return int(module.cache_stats()["compiles"]) if hasattr(module, "cache_stats") else None


def draw(runs: list[Run], path: Path) -> None:
    """Draws the loss curves of the runs."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for run, style in zip(runs, ("-", "--", ":", "-."), strict=False):
        axes.plot(run.losses, style, label=f"{run.name} ({run.accuracy:.1%})", linewidth=1.4)
    axes.set(xlabel="step", ylabel="training loss", yscale="log", title="A small CNN on handwritten digits")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def print_table(runs: list[Run]) -> None:
    """One line per run."""
    if len(runs) > 1:
        print("\nThe modes share their compiled programs: the first to need one compiles it.", end="")
    print(f"\n{'mode':<8}{'ms per step':>14}{'compiles':>11}{'accuracy':>11}")
    for run in runs:
        compiles = "-" if run.compiles is None else str(run.compiles)
        print(f"{run.name:<8}{run.seconds_per_step * 1e3:>14.2f}{compiles:>11}{run.accuracy:>11.2%}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train a small CNN on scikit-learn's handwritten digits and check it on held-out images.",
        epilog="Example: python examples/digits.py --device tpu --mode all",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--device", default="tpu", help="where to train: tpu, tpu:1, cpu, ...")
    parser.add_argument("--mode", choices=[*MODES, "all"], default="strict", help="eager mode, on a tpu only")
    parser.add_argument("--epochs", type=int, default=10, help="passes over the training images")
    parser.add_argument("--batch-size", type=int, default=64, help="images per step")
    parser.add_argument("--seed", type=int, default=0, help="for the weights, the order of the data and dropout")
    parser.add_argument("--target", type=float, default=0.97, help="fail when the accuracy is not above this")
    parser.add_argument("--picture", type=Path, default=Path("build/demo/digits.png"), help="where the curves go")
    options = parser.parse_args()
    if options.epochs < 1:
        parser.error("--epochs must be at least 1")

    device = torch.device(options.device)
    settings = (device, options.epochs, options.batch_size, options.seed)
    runs = []
    if device.type == "tpu":
        for mode in MODES if options.mode == "all" else [options.mode]:
            torch.tpu.eager_mode = mode
            runs.append(train(mode, *settings))
    else:
        runs.append(train(device.type, *settings))

    print_table(runs)
    draw(runs, options.picture)
    print(f"\nLoss curves: {options.picture}")
    failed = [run.name for run in runs if run.accuracy <= options.target]
    if failed:
        print(f"Not above {options.target:.0%} on held-out images: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
