"""What a training step of a GPT costs on two processes, by DDP and by FSDP2, beside PyTorch's CPU backend over Gloo;
what an all-reduce of 16 MB costs beside Gloo's own; and how much of a DDP step's communication is hidden behind its
compute.

    python benches/distributed_step.py [--rounds 3] [--link 500mbit]

Processes of one machine pass bytes as fast as their cores can copy them, and then the cores are busy with that. --link
gives the processes a network of their own, whose loopback passes so much and no more, as a network between hosts does.
It needs root, `unshare` (util-linux), and `ip` and `tc` (iproute2).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
from char_gpt import CharGPT

BATCH, CONTEXT, WIDTH, LAYERS, VOCABULARY = 8, 64, 128, 4, 96
STEPS = 12


def synchronize(device: str) -> None:
    if device == "tpu":
        torch.accelerator.synchronize()


def median_of(work: Callable[[], object], device: str) -> float:
    """Milliseconds: the median of the second half of the calls, each between two barriers of the device."""
    times = []
    for _ in range(STEPS):
        dist.barrier()
        begin = time.perf_counter()
        work()
        synchronize(device)
        times.append(1e3 * (time.perf_counter() - begin))
    return statistics.median(times[STEPS // 2 :])


def step_of(model: nn.Module, device: str) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT + 1)).to(device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten()).backward()
        optimizer.step()

    return step


def new_model(device: str) -> CharGPT:
    torch.manual_seed(0)
    return CharGPT(VOCABULARY, CONTEXT, WIDTH, LAYERS, heads=4).to(device)


def sharded_model(device: str) -> nn.Module:
    """The model under FSDP2, each block by itself."""
    model = new_model(device)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def on_ranks(ranks: int, script: str, *arguments: str, **variables: str) -> Any:
    """Runs a script on so many ranks of this machine. Returns what rank 0 prints last, read as JSON."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **variables}
    command = [sys.executable, *launcher, script, *arguments]
    output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(output.splitlines()[-1])


def work(device: str) -> None:
    if device == "tpu":
        torch.get_device_module("tpu").eager_mode = "fused"
    dist.init_process_group()
    found = {"alone": median_of(step_of(new_model(device), device), device)}
    parallel = DistributedDataParallel(new_model(device))
    step = step_of(parallel, device)
    found["ddp"] = median_of(step, device)
    with parallel.no_sync():
        found["ddp without communication"] = median_of(step, device)
    gradients = [torch.ones_like(parameter) for parameter in parallel.parameters()]
    whole = torch.cat([gradient.flatten() for gradient in gradients])
    found["communication of ddp"] = median_of(lambda: dist.all_reduce(whole), device)
    found["fsdp2"] = median_of(step_of(sharded_model(device), device), device)
    large = torch.ones(4 << 20, device=device)
    found["all_reduce of 16 MB"] = median_of(lambda: dist.all_reduce(large), device)
    if dist.get_rank() == 0:
        print(json.dumps(found))
    dist.destroy_process_group()


def over_a_link(rate: str, arguments: list[str]) -> None:
    """Runs this script again, in a network whose loopback passes so much, such as "500mbit"."""
    if missing := [name for name in ("unshare", "ip", "tc") if shutil.which(name) is None]:
        raise SystemExit(f"--link needs {', '.join(missing)}: install util-linux and iproute2")
    limited = 'ip link set lo up && tc qdisc add dev lo root tbf rate "$0" burst 256kb latency 400ms && exec "$@"'
    command = ["unshare", "--net", "sh", "-c", limited, rate, sys.executable, __file__, *arguments]
    raise SystemExit(subprocess.run(command, env={**os.environ, "GLOO_SOCKET_IFNAME": "lo"}, check=False).returncode)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="how often each device has its turn")
    parser.add_argument("--link", metavar="RATE", help="of the network between the processes, such as 500mbit")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker)
        return
    if options.link:
        over_a_link(options.link, ["--rounds", str(options.rounds)])
    found: dict[str, dict[str, list[float]]] = {"tpu": {}, "cpu": {}}
    for _ in range(options.rounds):
        for device, figures in found.items():
            variables = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"} if device == "cpu" else {}
            for name, value in on_ranks(2, __file__, "--worker", device, **variables).items():
                figures.setdefault(name, []).append(value)
    print(f"{'':28}{'torchtpu':>12}{'PyTorch CPU':>14}{'ratio':>8}   (ms, medians of {options.rounds} rounds)")
    for name in found["tpu"]:
        ours, theirs = (statistics.median(found[device][name]) for device in ("tpu", "cpu"))
        print(f"{name:28}{ours:12.2f}{theirs:14.2f}{ours / theirs:8.2f}")
    for device, title in (("tpu", "torchtpu"), ("cpu", "PyTorch's CPU backend")):
        medians = {name: statistics.median(values) for name, values in found[device].items()}
        share = medians["ddp"] / (medians["ddp without communication"] + medians["communication of ddp"])
        print(f"{title}: a DDP step takes {share:.2f} of its compute and its communication one after the other")


if __name__ == "__main__":
    main()
