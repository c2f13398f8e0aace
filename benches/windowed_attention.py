#!/usr/bin/env python3
"""The cost of attention in a window, by flex_attention with a block mask and with the whole matrix of scores.

One batch of 8 heads of 64 in float32; each query attends to the 256 keys up to its own. "flex" is
torch.compile(flex_attention) with that block mask. "matrix" is scaled_dot_product_attention with the mask as a
matrix, also compiled. PyTorch's CPU backend, which has no backward of flex_attention, is compared for the forward.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from contenders import Answer, Contender, alternate, open_torch, quiet_collector, serve

LENGTHS = (512, 1024, 2048, 4096)
WINDOW = 256
REPEATS = 5


def measure(system: str, length: int) -> None:
    """Runs in a contender's process."""
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention
    from torch.nn.functional import scaled_dot_product_attention

    device, wait = open_torch(system, "compile")
    has_gradients = system != "cpu"
    q, k, v = (torch.randn(1, 8, length, 64).to(device).requires_grad_(has_gradients) for _ in range(3))
    block_mask = create_block_mask(
        lambda b, h, i, j: (i >= j) & (i - j < WINDOW), None, None, length, length, device=device
    )
    places = torch.arange(length, device=device)
    distance = places[:, None] - places
    matrix = (distance >= 0) & (distance < WINDOW)
    flex, whole = torch.compile(flex_attention), torch.compile(scaled_dot_product_attention)
    forms: dict[str, Callable[[], Any]] = {
        "flex": lambda: flex(q, k, v, block_mask=block_mask),
        "matrix": lambda: whole(q, k, v, attn_mask=matrix),
    }

    def forward(form: Callable[[], Any]) -> None:
        with torch.no_grad():
            form()
        wait()

    def both(form: Callable[[], Any]) -> None:
        form().sum().backward()
        wait()

    def timed(run: Callable[[Callable[[], Any]], None], form: Callable[[], Any]) -> float:
        run(form)
        seconds = []
        for _ in range(REPEATS):
            start = time.perf_counter()
            run(form)
            seconds.append(time.perf_counter() - start)
        return median(seconds) * 1e3

    def one_round() -> Answer:
        with quiet_collector():
            return {
                f"{name} {'both' if run is both else 'forward'}": timed(run, form)
                for name, form in forms.items()
                for run in ((forward, both) if has_gradients else (forward,))
            }

    serve(one_round)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each contender, alternating (default: 3)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default: 2)")
    parser.add_argument("--serve", nargs=3, metavar=("SYSTEM", "MODE", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        measure(options.serve[0], int(options.serve[2]))
        return 0

    contenders = [
        Contender("torchtpu compile", "torchtpu", "compile"),
        Contender("torch CPU compile", "cpu", "compile"),
    ]
    print(f"A window of {WINDOW} keys: median of {options.rounds} alternating rounds, ms")
    print(f"{'':<8}{'forward':>32}{'forward and backward':>24}{'torch CPU, forward':>24}")
    print(f"{'length':<8}{'flex':>16}{'matrix':>16}{'flex':>12}{'matrix':>12}{'flex':>12}{'matrix':>12}")
    for length in LENGTHS:
        figures = alternate(contenders, Path(__file__), str(length), options.rounds, options.threads)
        ours, cpu = (figures.get(each.name, {}) for each in contenders)
        row = [ours.get("flex forward"), ours.get("matrix forward"), ours.get("flex both"), ours.get("matrix both")]
        row += [cpu.get("flex forward"), cpu.get("matrix forward")]
        widths = (16, 16, 12, 12, 12, 12)
        cells = [f"{each:>{width}.1f}" if each else " " * width for each, width in zip(row, widths, strict=True)]
        print(f"{length:<8}{''.join(cells)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
