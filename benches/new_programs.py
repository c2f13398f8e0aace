#!/usr/bin/env python3
"""What new programs cost: each row runs in a process of its own that begins with an empty cache.

generate    transformers' generate() of a small Llama, 64 tokens: the first and the second call, beside the CPU's second
chain       400 operators in a chain whose results are all kept
layers      5,000 linear layers of width 8, forward and backward
adamw       the first step of AdamW over 2,000 parameters of 4 shapes: foreach, fused and each alone
signatures  1,000 small calls of add, mul, sum, index_select and softmax, each with a shape of its own
pause       a training loop over a GPT whose length changes at step 50: the longest step from there on
fallback    the same where the operators have run in Strict at both lengths, so that Fused has them to fall back on

python benches/new_programs.py --rows chain,adamw --modes fused
"""

from __future__ import annotations

import argparse
import functools
import itertools
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

BARS = {
    "generate": "first call 5 s; second call 0 compiles, 3 x the CPU",
    "chain": "4 s in Fused",
    "layers": "30 s in Fused",
    "adamw": "4 s in every form",
    "signatures": "5 ms each in Strict",
    "pause": "none: no program for the length exists",
    "fallback": "300 ms",
}


def timed(run: Callable[[], Any], device: str = "tpu") -> tuple[float, int]:
    """The seconds until the device is done, and the programs that were compiled."""
    before, start = torch.tpu.cache_stats()["compiles"], time.perf_counter()  # type: ignore[attr-defined]
    run()
    if device == "tpu":
        torch.tpu.synchronize()  # type: ignore[attr-defined]
    return time.perf_counter() - start, torch.tpu.cache_stats()["compiles"] - before  # type: ignore[attr-defined]


def generate() -> str:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    sizes = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}
    model = LlamaForCausalLM(LlamaConfig(**sizes, **heads, eos_token_id=-1, pad_token_id=0)).eval()
    prompt = torch.randint(3, 300, (1, 9))

    def answer(device: str) -> Callable[[], Any]:
        return lambda: model.generate(prompt.to(device), max_new_tokens=64, do_sample=False).cpu()

    answer("cpu")()
    host = timed(answer("cpu"), "cpu")[0]
    model.to("tpu")
    first, made = timed(answer("tpu"))
    second, again = timed(answer("tpu"))
    return (
        f"first {first:.2f} s, {made} compiles; second {second:.3f} s, {again} compiles, {second / host:.2f} x the CPU"
    )


def chain() -> str:
    def run() -> None:
        kept = [torch.ones(64, device="tpu")]
        for number in range(400):
            kept.append(kept[-1].sin() if number % 2 else kept[-1] * 1.01 + number)
        float(kept[-1].sum())

    seconds, made = timed(run)
    return f"{seconds:.2f} s, {made} compiles"


def layers() -> str:
    model = nn.Sequential(*(nn.Linear(8, 8) for _ in range(5000))).to("tpu")
    torch.tpu.synchronize()  # type: ignore[attr-defined]
    seconds, made = timed(lambda: model(torch.ones(4, 8, device="tpu")).sum().backward())
    return f"{seconds:.2f} s, {made} compiles"


def adamw() -> str:
    found = []
    for form, options in (("foreach", {"foreach": True}), ("fused", {"fused": True}), ("alone", {"foreach": False})):
        shapes = [(7,), (3, 5), (16,), (4, 4)]
        parameters = [nn.Parameter(torch.ones(shapes[i % 4]).to("tpu")) for i in range(2000)]
        for parameter in parameters:
            parameter.grad = torch.ones_like(parameter)
        optimizer = torch.optim.AdamW(parameters, lr=1e-3, **options)  # type: ignore[arg-type]
        torch.tpu.synchronize()  # type: ignore[attr-defined]
        seconds, made = timed(optimizer.step)
        found.append(f"{form} {seconds:.2f} s, {made} compiles")
    return "; ".join(found)


def signatures() -> str:
    drawn = random.Random(0)
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda x: x + 1.5,
        lambda x: x * x,
        lambda x: x.sum(0),
        lambda x: x.index_select(0, torch.zeros(2, dtype=torch.int64, device="tpu")),
        lambda x: x.softmax(-1),
    ]
    shapes = drawn.sample([(a, b) for a in range(2, 40) for b in range(2, 40)], 1000)
    given = [torch.ones(shape).to("tpu") for shape in shapes]

    def run() -> None:
        for number, x in enumerate(given):
            calls[number % len(calls)](x)

    torch.tpu.synchronize()  # type: ignore[attr-defined]
    seconds, made = timed(run)
    return f"{seconds * 1e3 / len(given):.2f} ms each, {made} compiles"


def pause(has_programs: bool = False) -> str:
    import changing_models

    torch.manual_seed(0)
    work = changing_models.WORKS["length"]
    model = work.model().to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

    def step(length: int) -> None:
        inputs, targets = work.batch(length)
        optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(model(inputs.to("tpu")), targets.to("tpu").flatten())
        loss.backward()
        optimizer.step()

    if has_programs:
        with torch.tpu.set_eager_mode("strict"):  # type: ignore[attr-defined]
            for length in (64, 96, 64, 96):
                step(length)
    ends = [time.perf_counter()]
    for number in range(80):
        step(64 if number < 50 else 96)
        torch.tpu.synchronize()  # type: ignore[attr-defined]
        ends.append(time.perf_counter())
    steps = [(end - start) * 1e3 for start, end in itertools.pairwise(ends)]
    usual, later = statistics.median(steps[25:50]), statistics.median(steps[70:])
    return f"longest step after the change {max(steps[50:]):.0f} ms; usual {usual:.0f} before, {later:.0f} in the end"


ROWS: dict[str, Callable[[], str]] = {
    "generate": generate,
    "chain": chain,
    "layers": layers,
    "adamw": adamw,
    "signatures": signatures,
    "pause": pause,
    "fallback": functools.partial(pause, has_programs=True),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=",".join(ROWS), help=f"some of {','.join(ROWS)} (default: all)")
    parser.add_argument("--modes", default="strict,fused", help="default: strict,fused")
    parser.add_argument("--row", nargs=2, metavar=("ROW", "MODE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.row:
        row, mode = options.row
        torch.tpu.set_eager_mode(mode)  # type: ignore[attr-defined]
        print(ROWS[row]())
        return 0
    failed = 0
    for row in options.rows.split(","):
        print(f"{row} (bar: {BARS[row]})")
        for mode in options.modes.split(","):
            with tempfile.TemporaryDirectory(prefix="torchtpu-bench-") as folder:
                command = [sys.executable, __file__, "--row", row, mode]
                run = subprocess.run(
                    command, env={**os.environ, "TORCHTPU_CACHE_DIR": folder}, capture_output=True, text=True
                )
            failed += run.returncode != 0
            print(f"  {mode:8}{run.stdout.strip() or run.stderr.strip()[-500:]}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
