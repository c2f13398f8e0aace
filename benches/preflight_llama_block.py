"""A training step of one Llama block, by torchtpu and by JAX, as the TPU's compiler judges it.

The block is 4096 wide, in bfloat16, and takes 4 x 4096 places. A step is its forward and backward pass and AdamW. It is
written in PyTorch, and recorded on the dry device in the eager mode fused and with `torch.tpu.compile_step`; and in JAX
as one jitted function whose parameters and moments are donated. All are compiled to the end for one chip. Needs libtpu
and jax, no TPU, and takes some minutes:

    python benches/preflight_llama_block.py --chip v5p

The mathematics and the dtypes are the same, and so is the attention: JAX's splash attention with the same blocks, which
`scaled_dot_product_attention` is on a TPU. Temporaries, cycles and traffic are read from what the compiler writes down.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from preflight_published import HEAD, Block, Row
from torch import Tensor
from torchtpu.kernels.library.attention import splash_attention
from torchtpu.preflight import hlo, recording
from torchtpu.preflight.chips import CHIPS, Chip, find, topology_of
from torchtpu.preflight.compiler import Compilers, Dumps
from torchtpu.preflight.recording import Program

WAYS = ("jax", "compile", "fused")
ROW = Row("", 1, 4096, 32, 8, 14336, 0, 4096, 4, 0.0, "", "")
RATE, DECAY, FIRST, SECOND, EPSILON = 1e-4, 0.01, 0.9, 0.999, 1e-8
STEPS = 3
# Instructions that only name or pass on a value.
FREE = ("parameter", "constant", "tuple", "bitcast", "get-tuple-element", "copy-done", "slice-done")


@dataclasses.dataclass
class Cost:
    """What the compiler says of a step."""

    programs: int = 0
    cycles: int = 0
    """Of the instructions for which it has an estimate."""
    seconds: float = 0.0
    """Of all: the longer of the estimate and the memory traffic."""
    traffic: int = 0
    """Bytes of HBM that are read and written."""
    temporary: int = 0
    """Bytes of temporaries; the most of the programs."""
    total: int = 0
    """Bytes with parameters, moments and inputs; the most of the programs."""


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


def train(way: str) -> None:
    """Steps of the block."""
    block = Block(ROW).to("tpu", torch.bfloat16)
    optimizer = torch.optim.AdamW(block.parameters(), RATE, (FIRST, SECOND), EPSILON, DECAY)
    cosine, sine = (torch.ones(ROW.length, HEAD, dtype=torch.bfloat16).to("tpu") for _ in range(2))

    def step(x: Tensor) -> Tensor:
        loss = block(x, cosine, sine).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    if way == "compile":
        step = torch.tpu.compile_step(step)  # type: ignore[attr-defined]
    for _ in range(STEPS + 1):
        step(torch.zeros(ROW.batch, ROW.length, ROW.width, dtype=torch.bfloat16).to("tpu")).item()


def programs(way: str) -> list[Program]:
    """Those of a step."""
    if way == "jax":
        return [Program(lowered(), [], [], [], [])]
    recorded = recording.record(lambda: train(way), STEPS, 600.0, "fused")
    if recorded.failure:
        raise SystemExit(f"{way}: {recorded.failure}")
    return recorded.programs


# ---- JAX -------------------------------------------------------------------------------------------------------------


SIZES: dict[str, tuple[int, ...]] = {
    "query": (4096, 4096),
    "key": (4096, 1024),
    "value": (4096, 1024),
    "out": (4096, 4096),
    "gate": (4096, 14336),
    "up": (4096, 14336),
    "down": (14336, 4096),
    "before": (4096,),
    "after": (4096,),
}


def jax_step(attention: Callable[..., Any] = splash_attention) -> Callable[..., Any]:
    """The step of a list of blocks: of parameters, both moments, the number of the step, and the inputs."""
    import jax
    import jax.numpy as jnp

    def norm(x: Any, weight: Any) -> Any:
        wide = x.astype(jnp.float32)
        return (wide * jax.lax.rsqrt((wide * wide).mean(-1, keepdims=True) + 1e-5) * weight).astype(x.dtype)

    def rotated(x: Any, cosine: Any, sine: Any) -> Any:
        left, right = jnp.split(x, 2, -1)
        return x * cosine + jnp.concatenate([-right, left], -1) * sine

    def block(p: Any, x: Any, cosine: Any, sine: Any) -> Any:
        y = norm(x, p["before"])
        query, key, value = ((y @ p[name]).reshape(*x.shape[:2], -1, HEAD) for name in ("query", "key", "value"))
        query, key = (rotated(each, cosine[:, None], sine[:, None]) for each in (query, key))
        query, key, value = (each.transpose(0, 2, 1, 3) for each in (query, key, value))
        mixed = attention(query, key, value, True, HEAD**-0.5).transpose(0, 2, 1, 3)
        x = x + mixed.reshape(x.shape) @ p["out"]
        y = norm(x, p["after"])
        return x + (jax.nn.silu(y @ p["gate"]) * (y @ p["up"])) @ p["down"]

    def loss(blocks: Any, x: Any, *angles: Any) -> Any:
        for each in blocks:
            x = block(each, x, *angles)
        return jnp.square(x.astype(jnp.float32)).mean()

    def step(parameters: Any, first: Any, second: Any, count: Any, *inputs: Any) -> Any:
        value, gradients = jax.value_and_grad(loss)(parameters, *inputs)
        count = count + 1
        first = jax.tree.map(lambda m, g: m + (g - m) * (1 - FIRST), first, gradients)
        second = jax.tree.map(lambda v, g: v * SECOND + g * g * (1 - SECOND), second, gradients)
        rate, root = RATE / (1 - FIRST**count), jnp.sqrt(1 - SECOND**count)

        def adamw(p: Any, m: Any, v: Any) -> Any:
            return (p * (1 - RATE * DECAY) - rate * (m / (jnp.sqrt(v) / root + EPSILON))).astype(p.dtype)

        return jax.tree.map(adamw, parameters, first, second), first, second, count, value

    return step


def lowered() -> str:
    """The step of one block in JAX, as StableHLO for a TPU."""
    import jax
    import jax.numpy as jnp

    def shaped(*sizes: int, dtype: Any = jnp.bfloat16) -> Any:
        return jax.ShapeDtypeStruct(sizes, dtype)

    parameters = [{name: shaped(*each) for name, each in SIZES.items()}]
    inputs = shaped(ROW.batch, ROW.length, ROW.width), shaped(ROW.length, HEAD), shaped(ROW.length, HEAD)
    traced = jax.jit(jax_step(), donate_argnums=(0, 1, 2, 3)).trace(
        parameters, parameters, parameters, shaped(dtype=jnp.float32), *inputs
    )
    return traced.lower(lowering_platforms=("tpu",)).as_text()


# ---- the compiler ----------------------------------------------------------------------------------------------------


def add(cost: Cost, dumps: Dumps, chip: Chip) -> None:
    """Adds a program to a step."""
    module, blocks = hlo.parse(dumps.code), hlo.allocations(dumps.assignment)
    cost.programs += 1
    for instruction in module.body:
        if instruction.opcode in FREE or instruction.opcode.endswith("-start"):
            continue
        traffic = module.traffic(instruction)
        cost.cycles += instruction.cycles
        cost.traffic += traffic
        cost.seconds += max(instruction.cycles / chip.clock, traffic / chip.memory_bandwidth)
    cost.temporary = max(cost.temporary, sum(block.size for block in blocks if block.kind == "temporary"))
    cost.total = max(cost.total, hlo.total_bytes(blocks))


def main() -> int:
    """Prints a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", default="v5p", choices=list(CHIPS))
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--keep", type=Path, help="a folder for what the compiler writes down")
    options = parser.parse_args()
    topology = topology_of(options.chip)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    recording.prepare(topology)
    print("| | programs | cycles | bytes | temporaries | with arguments | seconds |\n|---|---|---|---|---|---|---|")
    base: Cost | None = None
    with Compilers(3600.0) as compilers, tempfile.TemporaryDirectory() as temporary:
        for way in options.ways.split(","):
            cost = Cost()
            for number, program in enumerate(programs(way)):
                folder = (options.keep or Path(temporary)) / way / str(number)
                add(cost, compilers.compile(program, topology, folder, True), find(options.chip))
            base = base or cost
            print(row(way, cost, base), flush=True)
    return 0


def row(way: str, cost: Cost, base: Cost) -> str:
    """A row of the table; in brackets what it is of the first one."""

    def cell(name: str, unit: float, form: str) -> str:
        value, first = getattr(cost, name), getattr(base, name)
        return f"{value / unit:{form}} ({value / max(first, 1e-9):.3f})"

    cells = [cell("cycles", 1e6, ".1f") + " M"]
    cells += [cell(name, 1e9, ".2f") + " GB" for name in ("traffic", "temporary", "total")]
    return f"| {way} | {cost.programs} | {' | '.join(cells)} | {cell('seconds', 1, '.4f')} |"


if __name__ == "__main__":
    raise SystemExit(main())
