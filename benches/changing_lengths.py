#!/usr/bin/env python3
"""The cost of training steps whose size changes: the length of a GPT's text, the batch of an MLP, the images of a
small ResNet, the length of an LSTM's and a Mamba block's text, and the tokens that each expert of a mixture gets.

A pass is 30 steps of 12 or 20 sizes. "first" is the first step of a process with an empty cache, "cold" the pass
that begins with it, "again" the pass after it, "warm" the first pass of a process that finds the programs of
another one on disk. "constant" is a pass at the mean size, in a process that has seen only this size. The programs
are those of the first step, of the cold pass, of the pass after it, and those that the warm pass did not find on disk.
"of one" is the cold pass's number by that of the first step: in Strict, the programs for each distinct operator.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from contenders import Answer, Contender, Process, chosen, open_torch, serve

STEPS = 30
# The smallest size of each work, the largest, and how many there are. They are not in changing_models.py, because JAX's
# environment has no torch.
SIZES = {
    "length": (17, 250, 20),
    "batch": (2, 64, 20),
    "image": (16, 48, 12),
    "lstm": (5, 40, 12),
    "mamba": (17, 120, 20),
    "experts": (9, 64, 12),
}
CONSTANT = "@constant"


def sizes_of(work: str) -> list[int]:
    """The size of each step: all sizes in random order, then some of them again."""
    smallest, largest, count = SIZES[work]
    generator = random.Random(0)
    sizes = generator.sample(range(smallest, largest + 1), count)
    return sizes + generator.choices(sizes, k=STEPS - len(sizes))


def measure(system: str, mode: str, work: str) -> None:
    """Runs in a contender's process."""
    name, _, constant = work.partition("@")
    sizes = sizes_of(name)
    sizes = [round(statistics.mean(sizes))] * STEPS if constant else sizes
    step = make_jax_step(name) if system == "jax" else make_torch_step(system, mode, name)

    def programs() -> tuple[int, int]:
        if system != "torchtpu":
            return 0, 0
        import torch

        stats = torch.tpu.cache_stats()
        return stats["compiles"], stats["disk_hits"]

    def one_round() -> Answer:
        before, start = programs(), time.perf_counter()
        step(sizes[0])
        first, first_ms = programs(), (time.perf_counter() - start) * 1e3
        for size in sizes[1:]:
            step(size)
        seconds, after = time.perf_counter() - start, programs()
        made = {"first": sum(first) - sum(before), "all": sum(after) - sum(before), "compiled": after[0] - before[0]}
        return {"seconds": seconds, "first_ms": first_ms, **made}

    serve(one_round)


def make_torch_step(system: str, mode: str, work: str) -> Callable[[int], Any]:
    import changing_models
    import torch

    device, wait = open_torch(system, mode)
    torch.manual_seed(0)
    model = changing_models.WORKS[work].model().to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    criterion = torch.nn.CrossEntropyLoss()

    def loss_of(inputs: Any, targets: Any) -> Any:
        return criterion(model(inputs), targets)

    loss_of = torch.compile(loss_of) if mode == "compile" else loss_of

    def step(size: int) -> None:
        inputs, targets = changing_models.WORKS[work].batch(size)
        optimizer.zero_grad(set_to_none=True)
        loss_of(inputs.to(device), targets.to(device).flatten()).backward()
        optimizer.step()
        wait()

    return step


def make_jax_step(work: str) -> Callable[[int], Any]:
    """The same step, jitted whole, of the models that models_jax.py has."""
    import jax
    import numpy
    from models_jax import VOCABULARY, make_update

    if work != "length":
        raise SystemExit(f"no {work} in JAX")
    update, state = make_update("gpt")
    compiled = jax.jit(update, donate_argnums=(0, 1, 2))
    generator = numpy.random.default_rng(0)

    def step(length: int) -> None:
        tokens = generator.integers(VOCABULARY, size=(4, length + 1), dtype=numpy.int32)
        *state[:], value = compiled(*state, tokens[:, :-1], tokens[:, 1:].reshape(-1))
        jax.block_until_ready((state, value))

    return step


def figures_of(contender: Contender, work: str, threads: int) -> dict[str, Answer]:
    """The passes of a contender, by name. Empty if it cannot run this."""
    passes = {"": ("cold", "again"), "warm": ("warm",), CONSTANT: ("", "constant")}
    found: dict[str, Answer] = {}
    with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as folder:
        for kind, names in passes.items():
            if kind == "warm" and contender.system != "torchtpu":
                continue
            suffix, cache = (kind, Path(folder) / "constant") if kind == CONSTANT else ("", Path(folder) / "cache")
            process = Process(contender, Path(__file__), work + suffix, threads, cache)
            try:
                found |= {name: process.ask() for name in names}
            except (OSError, RuntimeError) as error:
                print(f"{contender.name} is left out: {error}", file=sys.stderr)
                return {}
            finally:
                process.close()
    return found


def row(name: str, found: dict[str, Answer]) -> str:
    cold, again, constant = found["cold"], found["again"], found["constant"]
    warm = f"{found['warm']['seconds']:.2f}" if "warm" in found else ""
    times = f"{cold['first_ms'] / 1e3:>8.2f}{cold['seconds']:>8.2f}{again['seconds']:>8.2f}{warm:>8}"
    times += f"{constant['seconds']:>10.2f}"
    if not cold["all"]:
        return f"{name:<20}{times}"
    made = f"{cold['first']:>10}{cold['all']:>6}{again['all']:>6}{found['warm']['compiled']:>6}"
    return f"{name:<20}{times}{made}{cold['all'] / max(1, cold['first']):>8.2f}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", choices=[*SIZES, "all"], default="all", help="what changes (default: all)")
    parser.add_argument(
        "--peers", default="all", help='"all", "none" or some of torch_tpu,torch_xla,jax (default: all)'
    )
    parser.add_argument("--modes", default="strict,fused,compile", help="of torchtpu (default: strict,fused,compile)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default: 2)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--serve", nargs=3, metavar=("SYSTEM", "MODE", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        measure(*options.serve)
        return 0

    figures: dict[str, dict[str, dict[str, Answer]]] = {}
    for work in SIZES if options.work == "all" else [options.work]:
        figures[work] = {}
        print(f"\n{work}: seconds of {STEPS} steps, and programs")
        print(f"{'':<20}{'first':>8}{'cold':>8}{'again':>8}{'warm':>8}{'constant':>10}", end="")
        print(f"{'in first':>10}{'cold':>6}{'again':>6}{'warm':>6}{'of one':>8}")
        for contender in chosen(options.peers):
            if contender.system == "torchtpu" and contender.mode not in options.modes.split(","):
                continue
            if found := figures_of(contender, work, options.threads):
                figures[work][contender.name] = found
                print(row(contender.name, found), flush=True)
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if all(figures.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
