"""Whether a step fits, by preflight's fast answer and by a whole compile: python benches/preflight_verdicts.py

Three models, four batches and two chips: 24 programs. Batches are searched that take half of the chip's limit, three
per cent less and more than all of it, and half more. Needs libtpu, no TPU, and takes a while: each program is compiled
to its end.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torchtpu.preflight import recording
from torchtpu.preflight.analysis import Analysis, analyze
from torchtpu.preflight.chips import find, topology_of
from torchtpu.preflight.compiler import Compilers
from torchtpu.preflight.recording import Program

# Parts of the limit that the four batches aim at.
AIMS = (0.5, 0.97, 1.03, 1.5)
SMALL = 8
# How close to an aim a batch comes, and how often one is searched.
CLOSE, TRIES = 0.02, 12
STEPS = 3


class Attention(nn.Module):
    """A layer of a decoder, 1024 wide, with 8 heads."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mix, self.out = nn.LayerNorm(1024), nn.Linear(1024, 3072), nn.Linear(1024, 1024)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mix(self.norm(x)).unflatten(-1, (3, 8, 128)).transpose(1, 3).unbind(2)
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return x + self.out(mixed.transpose(1, 2).flatten(2))


# For each model the module, and the sizes of one of its inputs.
MODELS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(2048, 8192), nn.GELU(), nn.Linear(8192, 2048)), (2048, 2048)),
    "attention": (Attention, (512, 1024)),
    "convolutions": (
        lambda: nn.Sequential(nn.Conv2d(64, 128, 3, padding=1), nn.BatchNorm2d(128), nn.ReLU(), nn.Conv2d(128, 64, 3)),
        (64, 112, 112),
    ),
}


def train(model: str, batch: int) -> None:
    """Steps of a model in bfloat16, as a script would make them."""
    make, sizes = MODELS[model]
    module = make().to("tpu", torch.bfloat16)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(STEPS + 1):
        loss = module(torch.randn(batch, *sizes, device="tpu", dtype=torch.bfloat16)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()


def record(model: str, batch: int) -> Program:
    """The largest program of a step."""
    recorded = recording.record(lambda: train(model, batch), STEPS, 600.0, "fused")
    if recorded.failure:
        raise SystemExit(f"{model}: {recorded.failure}")
    return recorded.programs[0]


def judge(compilers: Compilers, program: Program, chip: str, whole: bool) -> tuple[bool, Analysis]:
    """Whether a program fits by itself, and what is known of it."""
    with tempfile.TemporaryDirectory() as folder:
        dumps = compilers.compile(program, topology_of(chip), Path(folder), whole)
    if whole:
        if bool(dumps.code) == bool(dumps.out_of_memory):
            raise SystemExit("the whole compile gave no verdict")
        return not dumps.out_of_memory, analyze(program, dumps, find(chip))
    found = analyze(program, dumps, find(chip))
    return not found.out_of_memory and alone(program, found) <= find(chip).memory, found


def alone(program: Program, analysis: Analysis) -> int:
    """The bytes of a program without what lives beside it."""
    return analysis.total_bytes - sum(size for _, size in program.others)


def aim_at(compilers: Compilers, model: str, chip: str, aim: float, batch: int) -> tuple[int, Program, bool, float]:
    """Searches from a batch for one that takes about a part of the limit. Returns it with its program, the fast verdict
    and the part that it takes."""
    below, above = 0, 0
    for attempt in range(TRIES):
        program = record(model, batch)
        fits, found = judge(compilers, program, chip, False)
        share = alone(program, found) / find(chip).memory
        below, above = (batch, above) if share < aim else (below, batch)
        if abs(share - aim) < CLOSE or above == below + 1 or attempt == TRIES - 1:
            break
        # Memory may jump with the batch: what leaves the interval gives way to its middle.
        batch = max(1, round(batch * aim / share))
        if batch <= below or (above and batch >= above):
            batch = (below + above) // 2 if above else 2 * below
    return batch, program, fits, share


def main() -> int:
    """Prints a row for each program. Returns 1 if a verdict differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chips", default="v5e,v6e")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--time-limit", type=float, default=1800.0, help="seconds for each compile")
    options = parser.parse_args()
    chips = options.chips.split(",")
    recording.prepare(topology_of(chips[0]))
    differing = near = count = 0
    print(f"{'model':14}{'chip':6}{'batch':>7}{'of the limit':>14}  fast   whole", flush=True)
    with Compilers(options.time_limit) as compilers:
        for model in options.models.split(","):
            for chip in chips:
                batch = SMALL
                for aim in AIMS:
                    batch, program, fast, share = aim_at(compilers, model, chip, aim, batch)
                    whole = judge(compilers, program, chip, True)[0]
                    near, count = near + (abs(share - 1) < 0.05), count + 1
                    differing += fast != whole
                    words = [("fits" if each else "no").ljust(5) for each in (fast, whole)]
                    print(f"{model:14}{chip:6}{batch:>7}{share:>14.1%}  {'  '.join(words)}", flush=True)
    print(f"{count} programs, {near} within 5 % of the limit: {differing} verdicts differ")
    return int(differing > 0)


if __name__ == "__main__":
    raise SystemExit(main())
