"""What a TPU's compiler makes of FSDP2 on many chips, beside JAX's step with the same sharding, and of an all-reduce
over more chips than a pod has. Needs libtpu and jax, no TPU, and some minutes:

    python benches/distributed_ahead.py [--topologies v5p:4x4x4 v6e:4x4] [--layers 3]

A step is the forward and backward pass and AdamW of Llama blocks in bfloat16, sharded over all chips. torchtpu's is
`fully_shard` in `torch.tpu.compile_step(spmd=True)`: rank 0 records it on the dry device, with a group that sends
nothing, and the program is that of all ranks. JAX's is one jitted function whose parameters and moments are sharded and
donated. Both go to the same compiler, with the same options for overlap.

A collective is asynchronous if the compiler schedules its beginning and its end as two instructions. It is hidden if
products of matrices are between the two. Bytes are what a chip sends in rings, over all collectives of a step.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from preflight_llama_block import DECAY, EPSILON, FIRST, RATE, ROW, SECOND, SIZES, jax_step
from preflight_published import HEAD, Block
from torchtpu import _C
from torchtpu.preflight import hlo, recording
from torchtpu.preflight.compiler import LIVE_RANGES, SCHEDULED

WAYS = ("jax", "torchtpu")
# XLA's options for overlap on these chips (crates/engine/src/overlap.rs), given to JAX's compile, too.
OVERLAP = [
    f"xla_tpu_enable_sparse_core_collective_offload_{kind}"
    for kind in ("all_gather", "all_reduce", "reduce_scatter", "nd_reduce_scatter")
]
# XLA's names, and what a chip sends of the bytes of a result in a ring of n.
SENT = {
    "all-gather": lambda n: (n - 1) / n,
    "all-reduce": lambda n: 2 * (n - 1) / n,
    "reduce-scatter": lambda n: n - 1,
    "all-to-all": lambda n: (n - 1) / n,
    "collective-permute": lambda n: 1,
}
_COLLECTIVE = re.compile(rf"^\s+(?:ROOT )?%\S+ = (.*?) ({'|'.join(SENT)})(-start)?\((.*)$")
_BEGINS = re.compile(r"(AsyncCollectiveStart|(all-gather|all-reduce|reduce-scatter|collective-permute|async)-start)")
_ENDS = re.compile(r"(AsyncCollectiveDone|-done)")


# ---- PyTorch ---------------------------------------------------------------------------------------------------------


class Blocks(torch.nn.Module):
    """Llama blocks, one after another."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.blocks = torch.nn.ModuleList(Block(ROW) for _ in range(layers))

    def forward(self, x: torch.Tensor, *angles: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, *angles)
        return x


def of_many(options: Any, _: Any) -> Any:
    """The process group of rank 0 of many, which sends nothing."""
    from torch.testing._internal.distributed.fake_pg import FakeProcessGroup

    inner = FakeProcessGroup._create_internal(options.group_rank, options.group_size, None)
    return _C.process_group(inner, options.store, 60_000, list(range(options.group_size)))


def recorded(topology: str, chips: int, layers: int, batch: int) -> str:
    """The program of a step that rank 0 records."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    recording.prepare(topology)
    dist.Backend.register_backend("many", of_many, extended_api=True, devices=["tpu"])
    dist.init_process_group("many", store=FakeStore(), rank=0, world_size=chips)
    mesh = init_device_mesh("tpu", (chips,))
    model = Blocks(layers).to("tpu", torch.bfloat16)
    for index, block in enumerate(model.blocks):
        # The backward pass begins with the last block, so its weights stay gathered, as in JAX's program.
        fully_shard(block, mesh=mesh, reshard_after_forward=index + 1 < layers)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), RATE, (FIRST, SECOND), EPSILON, DECAY)
    angles = [torch.ones(ROW.length, HEAD, dtype=torch.bfloat16).to("tpu") for _ in range(2)]

    @torch.tpu.compile_step(spmd=True)  # type: ignore[attr-defined]
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = model(x, *angles).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    synchronize = torch.accelerator.synchronize
    for number in range(3):
        x = torch.zeros(batch, ROW.length, ROW.width, dtype=torch.bfloat16).to("tpu")
        synchronize()
        if number == 2:
            _C.begin_explaining(True)
        step(x)
        synchronize()
    explained: Any = _C.end_explaining()
    runs = [explained["programs"][run["program"]] for run in explained["runs"]]
    if len(runs) != 1:
        raise SystemExit(f"a step has {len(runs)} programs: {[run['reason'] for run in explained['runs']]}")
    text: str = runs[0]["text"]
    return text


# ---- JAX -------------------------------------------------------------------------------------------------------------


def compile_jax(topology: str, layers: int, batch: int, folder: str) -> None:
    """Lets the compiler write down what it makes of the step in JAX."""
    import jax
    import jax.numpy as jnp
    import numpy as np
    from jax.experimental import topologies
    from jax.sharding import Mesh, NamedSharding, PartitionSpec
    from torchtpu.kernels.library.attention import splash_attention

    described: Any = topologies.get_topology_desc(platform="tpu", topology_name=topology)
    devices = sorted(described.devices, key=lambda device: device.id)
    mesh = Mesh(np.array(devices), ("data",))
    along, whole = (NamedSharding(mesh, PartitionSpec(*axes)) for axes in (("data",), ()))

    def attention(query: Any, key: Any, value: Any, causal: bool, scale: float) -> Any:
        def of_chip(query: Any, key: Any, value: Any) -> Any:
            return splash_attention(query, key, value, causal, scale)

        spec = PartitionSpec("data")
        return jax.shard_map(of_chip, mesh=mesh, in_specs=(spec,) * 3, out_specs=spec, check_vma=False)(
            query, key, value
        )

    def shaped(*sizes: int, sharding: Any = along, dtype: Any = jnp.bfloat16) -> Any:
        return jax.ShapeDtypeStruct(sizes, dtype, sharding=sharding)

    parameters = [{name: shaped(*sizes) for name, sizes in SIZES.items()} for _ in range(layers)]
    inputs = [shaped(len(devices) * batch, ROW.length, ROW.width)]
    inputs += [shaped(ROW.length, HEAD, sharding=whole) for _ in range(2)]
    states = jax.tree.map(lambda each: each.sharding, (parameters, parameters, parameters))
    jitted = jax.jit(jax_step(attention), donate_argnums=(0, 1, 2, 3), out_shardings=(*states, whole, whole))
    count = shaped(sharding=whole, dtype=jnp.float32)
    flags: dict[str, Any] = {"xla_dump_to": folder, "xla_dump_hlo_as_text": True, **dict.fromkeys(OVERLAP, True)}
    jitted.trace(parameters, parameters, parameters, count, *inputs).lower().compile(compiler_options=flags)


# ---- the compiler's answer -------------------------------------------------------------------------------------------


class Cost(NamedTuple):
    """What a chip sends in a step."""

    collectives: int
    kinds: str
    sent: float
    asynchronous: int
    hidden: int


def group_of(attributes: str, chips: int) -> int:
    """The number of chips that a collective is between."""
    if listed := re.search(r"replica_groups=\{\{([\d,]*)\}", attributes):
        return len(listed[1].split(","))
    if counted := re.search(r"replica_groups=\[\d+,(\d+)\]", attributes):
        return int(counted[1])
    if named := re.search(r"replica_groups=mesh\[([^\]]*)\] ?\{([^}]*)\}", attributes):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", named[1]))
        return prod(int(sizes[axis]) for axis in re.findall(r"'(\w+)'", named[2]))
    return chips


def cost_of(folder: Path, chips: int) -> Cost:
    """Reads what the compiler wrote down of the largest program."""
    text = max((path.read_text() for path in folder.glob(f"*{SCHEDULED}")), key=len)
    kinds: Counter[str] = Counter()
    sent = 0.0
    bodies = computations(text)
    runs = runs_of(bodies)
    for name, lines in bodies.items():
        for found in filter(None, map(_COLLECTIVE.match, lines)):
            result, kind, start, attributes = found.groups()
            shapes = hlo.shapes(result)
            n = group_of(attributes, chips)
            if start and kind == "all-gather":
                shapes = shapes[len(shapes) // 2 :]
            if start and kind == "collective-permute":
                shapes = shapes[1:2]
            # The compiler's name of a reduce-scatter that it writes as an all-reduce and a slice.
            factor = SENT[kind](n)
            if name.startswith("all-reduce-scatter"):
                kind, factor = "reduce-scatter", SENT["reduce-scatter"](n) / n
            kinds[kind] += runs[name]
            sent += runs[name] * sum(shape.dense for shape in shapes) * factor
    asynchronous, hidden = overlaps(hlo.parse(text))
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
    return Cost(sum(kinds.values()), listed, sent, asynchronous, hidden)


def computations(text: str) -> dict[str, list[str]]:
    """The lines of each computation."""
    bodies: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if header := re.match(r"^(?:ENTRY )?%(\S+) \(", line):
            lines = bodies.setdefault(header[1], [])
        lines.append(line)
    return bodies


def runs_of(bodies: dict[str, list[str]]) -> dict[str, int]:
    """How often each computation with collectives runs in a step: those of loops as often as the loops go round."""
    trips = dict.fromkeys(bodies, 1)
    for lines in bodies.values():
        for line in lines:
            loop = re.search(r" while\(.*condition=%([^\s,]+), body=%([^\s,]+)", line)
            if loop and any(map(_COLLECTIVE.match, bodies[loop[2]])):
                trips[loop[2]] = trips_of(bodies[loop[1]], bodies[loop[2]])
    return trips


def trips_of(condition: list[str], body: list[str]) -> int:
    """How often a loop goes round whose counter begins at 0, grows by a constant, and is compared with another."""
    compared = "\n".join(condition)
    index, limit = re.search(r"\), index=(\d+)", compared), re.search(r" constant\((\d+)\)", compared)
    if not index or not limit or "direction=LT" not in compared:
        raise SystemExit(f"a loop whose number of rounds is not known: {compared}")
    defined = {found[1]: line for line in body if (found := re.match(r"^\s+(?:ROOT )?%(\S+) = ", line))}
    root = next(line for line in body if line.startswith("  ROOT"))
    operands = re.findall(r"%([^\s,)]+)", root.partition(" tuple(")[2].partition("), ")[0])
    added = re.search(r" add\(%[^\s,]+, %([^\s,)]+)\)", defined[operands[int(index[1])]])
    step = re.search(r" constant\((\d+)\)", defined[added[1]]) if added else None
    return -(-int(limit[1]) // int(step[1] if step else 1))


def overlaps(module: hlo.Module) -> tuple[int, int]:
    """How many collectives of the schedule are asynchronous, and how many have products of matrices beside them."""

    def is_product(instruction: hlo.Instruction) -> bool:
        bodies = [each for name in instruction.called for each in module.computations.get(name, [])]
        return any(each.opcode in ("convolution", "dot") for each in [instruction, *bodies])

    def text_of(instruction: hlo.Instruction) -> str:
        return f"{instruction.name} {instruction.opcode}"

    asynchronous = hidden = 0
    for index, start in enumerate(module.body):
        if not _BEGINS.search(text_of(start)) or not is_collective(module, start):
            continue
        asynchronous += 1
        names, beside = {start.name}, False
        for later in module.body[index + 1 :]:
            if names & set(later.operands):
                if _ENDS.search(text_of(later)):
                    break
                names.add(later.name)
            beside = beside or is_product(later)
        hidden += beside
    return asynchronous, hidden


def is_collective(module: hlo.Module, start: hlo.Instruction) -> bool:
    """Whether this is the beginning of a collective, and not of a copy or of a kernel."""
    if start.opcode != "async-start":
        return True
    bodies = [each for name in start.called for each in module.computations.get(name, [])]
    inner = [each for body in bodies for name in body.called for each in module.computations.get(name, [])]
    return any(each.opcode.removesuffix("-start") in SENT for each in [*bodies, *inner])


def work(options: argparse.Namespace) -> None:
    """In a process of its own: compiles the step of one way for one topology."""
    way, topology, folder = options.worker
    chips = prod(map(int, topology.partition(":")[2].split("x")))
    if way == "jax":
        compile_jax(topology, options.layers, options.batch, folder)
    else:
        text = recorded(topology, chips, options.layers, options.batch)
        Path(folder, "program.mlir").write_text(text)
        _C.examine_ahead(text, topology, folder, True, chips)


def scheduled(arguments: list[str], environment: dict[str, str], folder: Path) -> None:
    """Runs a compile until the schedule is written down: the code, which takes minutes, is of no use here."""
    process = subprocess.Popen(arguments, env=environment)
    while process.poll() is None:
        # The live ranges are written after the schedule.
        if any(folder.glob(f"*{SCHEDULED}")) and any(folder.glob(f"*{LIVE_RANGES}")):
            time.sleep(1)
            process.kill()
            process.wait()
            return
        time.sleep(0.2)
    if process.returncode:
        raise SystemExit(process.returncode)


def many_chips() -> None:
    """One all-reduce over 107,520 chips in 12 slices, and over 64."""
    text = """module @m attributes {mhlo.num_replicas = COUNT : i32} {
  func.func @main(%x: tensor<1024xf32>) -> tensor<1024xf32> {
    %0 = "stablehlo.all_reduce"(%x) <{replica_groups = dense<> : tensor<0x0xi64>}> ({
    ^bb0(%a: tensor<f32>, %b: tensor<f32>):
      %s = stablehlo.add %a, %b : tensor<f32>
      stablehlo.return %s : tensor<f32>
    }) : (tensor<1024xf32>) -> tensor<1024xf32>
    return %0 : tensor<1024xf32>
  }
}"""
    for topology in ("v5p:4x4x4", "v5p:16x20x28*12"):
        chips = prod(map(int, re.findall(r"\d+", topology.partition(":")[2])))
        began = time.monotonic()
        _C.compile_ahead(text.replace("COUNT", str(chips)), topology, chips)
        print(f"all-reduce over {chips} chips ({topology}): {time.monotonic() - began:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topologies", nargs="+", default=["v5p:4x4x4", "v6e:4x4"])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--batch", type=int, default=1, help="of a chip")
    parser.add_argument("--keep", type=Path, help="a folder for what the compiler writes down")
    parser.add_argument("--worker", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    titles = ["topology", "", "collectives", "asynchronous", "hidden", "GB sent by a chip", ""]
    print(f"| {' | '.join(titles)} |\n{'|---' * len(titles)}|")
    with tempfile.TemporaryDirectory() as temporary:
        for topology in options.topologies:
            chips = prod(map(int, topology.partition(":")[2].split("x")))
            first = 0.0
            for way in options.ways:
                folder = (options.keep or Path(temporary)) / topology.replace(":", "-") / way
                folder.mkdir(parents=True, exist_ok=True)
                environment = {"JAX_PLATFORMS": "cpu", "TPU_SKIP_MDS_QUERY": "1", **os.environ}
                arguments = [sys.executable, *sys.argv, "--worker", way, topology, str(folder)]
                scheduled(arguments, environment, folder)
                cost = cost_of(folder, chips)
                first = first or cost.sent
                counts = f"{cost.kinds} | {cost.asynchronous} | {cost.hidden}"
                sent = f"{cost.sent / 1e9:.3f} | {cost.sent / first:.3f}"
                print(f"| {topology} | {way} | {counts} | {sent} |", flush=True)
    many_chips()


if __name__ == "__main__":
    main()
