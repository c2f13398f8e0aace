"""Programs of many ranks, compiled by libtpu without a TPU.

    python -m tests.distributed.ahead collectives v5e:2x2 4

prints what libtpu says of each program as JSON, or its error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.nn.functional as F
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore
from torchtpu import _C

DEVICE = torch.device("tpu")
Program = tuple[Callable[..., Any], list[torch.Tensor]]


def collectives(mesh: DeviceMesh) -> dict[str, Program]:
    """Each collective over all ranks, and over one dimension of a mesh."""
    x = torch.ones(8 * mesh.size(), 256, device=DEVICE)
    made: dict[str, Program] = {}
    for name, group in (("all", mesh._flatten("all")), ("rows", mesh["rows"]), ("columns", mesh["columns"])):
        made |= {
            f"all_reduce, {name}": (lambda x, g=group: functional.all_reduce(x, "sum", g).sin(), [x]),
            f"all_gather, {name}": (lambda x, g=group: functional.all_gather_tensor(x, 0, g).sin(), [x]),
            f"reduce_scatter, {name}": (lambda x, g=group: functional.reduce_scatter_tensor(x, "avg", 0, g).sin(), [x]),
            f"all_to_all, {name}": (lambda x, g=group: functional.all_to_all_single(x, None, None, g).sin(), [x]),
        }
    return made


def reduction(mesh: DeviceMesh) -> dict[str, Program]:
    """One all-reduce over all ranks."""
    group = mesh._flatten("all")
    return {"all_reduce": (lambda x: functional.all_reduce(x, "sum", group).sin(), [torch.ones(1024, device=DEVICE)])}


WIDTH, HEADS, TOKENS, LAYERS = 2048, 16, 1024, 2
SHAPES = (
    *((WIDTH, WIDTH),) * 4,  # queries, keys, values, and what is made of the heads
    *((4 * WIDTH, WIDTH),) * 2,
    (WIDTH, 4 * WIDTH),
)


def block(x: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """A block of Llama: `(TOKENS, WIDTH)` to the same shape."""
    query, key, value, output, gate, up, down = weights
    normal = F.rms_norm(x, (WIDTH,))
    heads = [(normal @ each.t()).view(1, TOKENS, HEADS, -1).transpose(1, 2) for each in (query, key, value)]
    scores = (heads[0] @ heads[1].transpose(-1, -2)).float() * (WIDTH // HEADS) ** -0.5
    causal = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=x.device).tril()
    mixed = scores.masked_fill(~causal, float("-inf")).softmax(-1).to(x.dtype) @ heads[2]
    x = x + mixed.transpose(1, 2).reshape(TOKENS, WIDTH) @ output.t()
    normal = F.rms_norm(x, (WIDTH,))
    return x + (F.silu(normal @ gate.t()) * (normal @ up.t())) @ down.t()


def llama(mesh: DeviceMesh) -> dict[str, Program]:
    """A step of blocks whose weights are sharded over the last dimension of the mesh: they are gathered, and the
    gradients are reduced and scattered, as FSDP2 does it."""
    shards, replicas = mesh["columns"], mesh["rows"]
    parts = [
        torch.ones(rows // shards.size(), columns, dtype=torch.bfloat16, device=DEVICE)
        for _ in range(LAYERS)
        for rows, columns in SHAPES
    ]
    x = torch.ones(TOKENS, WIDTH, dtype=torch.bfloat16, device=DEVICE)

    def loss(whole: list[torch.Tensor], x: torch.Tensor) -> torch.Tensor:
        for layer in range(LAYERS):
            x = block(x, whole[layer * len(SHAPES) : (layer + 1) * len(SHAPES)])
        return x.float().square().mean()

    def step(x: torch.Tensor, *parts: torch.Tensor) -> list[torch.Tensor]:
        whole = [functional.all_gather_tensor(part, 0, shards) for part in parts]
        gradients = torch.func.grad(loss)(whole, x)
        scattered = [functional.reduce_scatter_tensor(each, "avg", 0, shards) for each in gradients]
        summed = [functional.all_reduce(each, "avg", replicas) for each in scattered]
        return [part - 0.01 * each for part, each in zip(parts, summed, strict=True)]

    return {"step": (step, [x, *parts])}


def main(which: str, topology: str, ranks: str, columns: str = "2") -> None:
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=int(ranks))
    mesh = init_device_mesh("cpu", (int(ranks) // int(columns), int(columns)), mesh_dim_names=("rows", "columns"))
    found: dict[str, Any] = {}
    for name, (function, arguments) in globals()[which](mesh).items():
        with torch.no_grad():
            text = torch.tpu.stablehlo(function, *arguments, target="tpu")
        began = time.monotonic()
        try:
            report = _C.compile_ahead(text, topology, int(ranks))
        except RuntimeError as error:
            report = {"error": str(error)}
        found[name] = {**report, "characters": len(text), "seconds": round(time.monotonic() - began, 2)}
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
