#!/usr/bin/env python3
"""The cost of one training step: an MLP, a small GPT and a small ResNet, compared with the peers on the same
plugin.

"chain" is not a training: 30 additions and multiplications on 4 million floats, which fusion turns into one pass.

Each step copies a fresh batch to the device, zeroes the gradients, runs forward, cross entropy, backward and
AdamW, and waits. A round is 12 steps, or as many as fit into a second. The figure is the median of its second
half, because a processor that was idle is slow at first. "first" is the first step of a process with an empty
cache, "warm" that of a process that finds the programs of another one on disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import Answer, alternate, chosen, open_torch, serve

# The minimum of a round: steps, and their seconds.
STEPS = 12
ROUND = 1.0
WORKS = ("mlp", "gpt", "resnet", "chain")
# Also "gpt2" in bfloat16, which takes minutes on a CPU.
WORKS_ON_CUDA = (*WORKS, "gpt2")


def measure(system: str, mode: str, work: str) -> None:
    """Runs in a contender's process."""
    if system == "jax":
        from models_jax import make_step

        step = make_step(work)
    else:
        step = make_torch_step(system, mode, work)
    first: list[float] = []

    def one_round() -> Answer:
        seconds: list[float] = []
        while len(seconds) < STEPS or sum(seconds) < ROUND:
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
        if not first:
            first.append(seconds[0])
        return {"step_ms": statistics.median(seconds[len(seconds) // 2 :]) * 1e3, "first_ms": first[0] * 1e3}

    serve(one_round)


def make_torch_step(system: str, mode: str, work: str) -> Callable[[], Any]:
    import torch
    from models import MODELS, make_batch

    device, wait = open_torch(system, mode)
    torch.manual_seed(0)
    if work == "chain":
        return make_chain(device, wait, mode)
    model = MODELS[work]().to(device)
    is_compiled_by_inductor = system == "cuda" and mode == "compile"
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=is_compiled_by_inductor)
    criterion = torch.nn.CrossEntropyLoss()
    forward = torch.compile(model) if is_compiled_by_inductor else model

    def train(inputs: Any, targets: Any) -> None:
        optimizer.zero_grad(set_to_none=True)
        criterion(forward(inputs), targets).backward()
        optimizer.step()

    train = torch.tpu.compile_step(train) if system == "torchtpu" and mode == "compile" else train

    def step() -> None:
        inputs, targets = make_batch(work)
        train(inputs.to(device), targets.to(device))
        wait()

    return step


def make_chain(device: Any, wait: Callable[[], None], mode: str) -> Callable[[], None]:
    import torch

    start = torch.rand(4 << 20).to(device)

    def links() -> Any:
        x = start
        for _ in range(15):
            x = (x + 0.5) * 0.9
        return x

    if mode == "compile":
        links = torch.tpu.compile_step(links) if device.type == "tpu" else torch.compile(links)

    def step() -> None:
        result = links()  # what nothing holds is not computed
        wait()
        del result

    return step


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=[*WORKS_ON_CUDA, "all"], default="all", help="which model (default: all)")
    parser.add_argument(
        "--peers",
        default="all",
        help='"all", "none" or some of torch_tpu,torch_xla,jax; on CUDA of cuda,jax (default: all)',
    )
    parser.add_argument(
        "--platform",
        choices=["cpu", "cuda"],
        default="cpu",
        help="cuda: on a GPU, beside PyTorch's CUDA backend and JAX, all with the packages of this environment",
    )
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="a built checkout of another commit, to compare with"
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each contender, alternating (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default: 2)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--serve", nargs=3, metavar=("SYSTEM", "MODE", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        measure(*options.serve)
        return 0

    figures = {}
    all_works = WORKS_ON_CUDA if options.platform == "cuda" else WORKS
    contenders = chosen(options.peers, options.against, options.platform)
    for work in all_works if options.work == "all" else [options.work]:
        figures[work] = alternate(contenders, Path(__file__), work, options.rounds, options.threads)
        print(f"\n{work}: ms per training step, median of {options.rounds} alternating rounds")
        print(f"{'':<20}{'step':>10}{'first':>10}{'warm':>10}")
        for name, answer in figures[work].items():
            warm = f"{answer['warm_ms']:.0f}" if "warm_ms" in answer else ""
            print(f"{name:<20}{answer['step_ms']:>10.2f}{answer['first_ms']:>10.0f}{warm:>10}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all("torchtpu strict" in each for each in figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
