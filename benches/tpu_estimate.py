#!/usr/bin/env python3
"""libtpu's estimates for the programs of one GPT training step in bfloat16: eager modes, compiled, and JAX.

Needs no TPU: the step runs on the CPU plugin, and its programs are compiled ahead of time for one chip. The step is
that of training_step.py, with parameters and moments in bfloat16 and the loss in float32. Each run of a program counts.
Estimates are the compiler's `optimal_seconds`. They do not include the launch of a program, in which modes differ most.
For programs without an estimate, the longer of arithmetic and memory traffic at the chip's peak is used, and their
number is shown.

    pip install libtpu
    python benches/tpu_estimate.py --topology v6e:1x1
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from contenders import environment_of, set_up

STEPS = 5
# Peak bfloat16 arithmetic and memory bandwidth of a chip, per second: Google's published figures.
CHIPS = {"v5e": (197e12, 819e9), "v6e": (918e12, 1640e9)}


def run_torch(mode: str, folder: Path) -> None:
    """In its own process: trains, writes the programs to `folder`, and records how often a step runs each."""
    import torch
    from models import Gpt, make_batch
    from torchtpu import _C, tpu

    tpu.set_eager_mode("strict" if mode == "compile" else mode)
    torch.manual_seed(0)
    _C.dump_programs(str(folder))
    with tpu.explain() as explanation:
        begun = time.perf_counter()
        model = Gpt().to("tpu", torch.bfloat16)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        criterion = torch.nn.CrossEntropyLoss()

        def train(inputs: Any, targets: Any) -> None:
            optimizer.zero_grad(set_to_none=True)
            criterion(model(inputs).float(), targets).backward()
            optimizer.step()

        train = tpu.compile_step(train) if mode == "compile" else train
        last = 0.0
        for _ in range(STEPS):
            inputs, targets = make_batch("gpt")
            tpu.synchronize()
            last = time.perf_counter() - begun
            train(inputs.to("tpu"), targets.to("tpu"))
            tpu.synchronize()
    runs = [run["program"] for run in explanation.runs if run["flushed"] >= last]
    # Programs are written in the order in which they are built, which is the order of their first runs.
    (folder / "runs.json").write_text(json.dumps(runs))


def run_jax(folder: Path) -> None:
    """In JAX's process: the whole step as one program."""
    from models_jax import lower_step

    (folder / "program_00000.mlir").write_text(lower_step("gpt", "bfloat16"))
    (folder / "runs.json").write_text("[0]")


def estimate(folder: Path, topology: str) -> dict[str, float]:
    """The sums over the programs that a step ran."""
    from torchtpu import _C

    runs = json.loads((folder / "runs.json").read_text())
    texts = sorted(folder.glob("program_*.mlir"))
    numbers = sorted(set(runs))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        reports = dict(
            zip(numbers, pool.map(lambda n: _C.compile_ahead(texts[n].read_text(), topology), numbers), strict=True)
        )
    arithmetic, bandwidth = CHIPS[topology.split(":")[0]]
    sums = {
        "runs": len(runs),
        "programs": len(numbers),
        "us": 0.0,
        "without": 0,
        "gflop": 0.0,
        "mb": 0.0,
        "peak_mb": 0.0,
    }
    for number in runs:
        report = reports[number]
        flops, traffic = report["flops"] or 0.0, report["bytes_accessed"] or 0.0
        seconds = report["optimal_seconds"]
        if seconds is None:
            seconds = max(flops / arithmetic, traffic / bandwidth)
            sums["without"] += 1
        sums["us"] += seconds * 1e6
        sums["gflop"] += flops / 1e9
        sums["mb"] += traffic / 1e6
        sums["peak_mb"] = max(sums["peak_mb"], (report["peak_bytes"] or 0) / 1e6)
    return sums


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topology", default="v6e:1x1", help="such as v5e:1x1 or v6e:1x1 (default)")
    parser.add_argument("--peers", default="all", help='"all" (JAX) or "none"')
    parser.add_argument("--run", nargs=2, metavar=("WHAT", "FOLDER"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.run:
        what, folder = options.run
        run_jax(Path(folder)) if what == "jax" else run_torch(what, Path(folder))
        return 0
    if options.topology.split(":")[0] not in CHIPS:
        parser.error(f"--topology must be of {', '.join(CHIPS)}")
    # Several processes may open libtpu if there is no TPU to share, and there is no metadata server.
    os.environ.update(ALLOW_MULTIPLE_LIBTPU_LOAD="1", TPU_SKIP_MDS_QUERY="1")
    print(f"one GPT step in bfloat16 on {options.topology}, as its compiler estimates it")
    print(f"{'':<20}{'us':>10}{'runs':>8}{'programs':>10}{'GFLOP':>8}{'MB':>8}{'peak MB':>9}{'no estimate':>13}")
    for what in ["strict", "fused", "compile", *(["jax"] if options.peers != "none" else [])]:
        system = "jax" if what == "jax" else "torchtpu"
        with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as name:
            folder = Path(name)
            # Programs in the forms for a TPU, although they run on the CPU.
            variables = environment_of(system, 2, folder / "cache") | {"TORCHTPU_TARGET": "tpu"}
            command = [str(set_up(system)), __file__, "--run", what, name]
            subprocess.run(command, env=variables, check=True)
            sums = estimate(folder, options.topology)
        name = "JAX jit" if what == "jax" else f"torchtpu {what}"
        print(
            f"{name:<20}{sums['us']:>10.1f}{sums['runs']:>8}{sums['programs']:>10}{sums['gflop']:>8.2f}"
            f"{sums['mb']:>8.0f}{sums['peak_mb']:>9.0f}{sums['without']:>13}",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
