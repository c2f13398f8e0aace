#!/usr/bin/env python3
"""The cost of one operator from Python: x + y on 8x8 float32, in a chain of a thousand, without waiting.

In a mode that runs each operator, the figure is the time until the last one is launched. In a mode that records,
the chain is recorded (it is shorter than a full chunk), and the flush is measured separately. In the mode
"compile", each addition is a call of a compiled function; PyTorch's CPU backend uses inductor for it.
"""

from __future__ import annotations

import argparse
import json
import operator
import sys
import time
from pathlib import Path
from statistics import median

from contenders import Answer, Contender, alternate, chosen, open_torch, quiet_collector, serve

CHAIN = 1000
# Seconds. A processor that was idle, as for each contender while another works, takes this long to reach full speed.
# A fixed number of repetitions would favour slower contenders.
WARM_UP = 0.3
MEASURED = 0.5


def measure(system: str, mode: str) -> None:
    """Runs in a contender's process."""
    import torch

    device, wait = open_torch(system, mode)
    start = torch.rand(8, 8).to(device)
    step = torch.rand(8, 8).to(device)
    add = torch.compile(operator.add) if mode == "compile" else operator.add
    add(start, step)

    def one_round() -> Answer:
        issuing, waiting = [], []
        warm = time.perf_counter() + WARM_UP
        with quiet_collector():
            while time.perf_counter() < warm + MEASURED:
                x = start
                wait()
                begin = time.perf_counter()
                for _ in range(CHAIN):
                    x = add(x, step)
                handed_over = time.perf_counter()
                wait()
                if begin > warm:
                    issuing.append(handed_over - begin)
                    waiting.append(time.perf_counter() - handed_over)
        return {
            "operator_us": median(issuing) / CHAIN * 1e6,
            "with_wait_us": (median(issuing) + median(waiting)) / CHAIN * 1e6,
        }

    serve(one_round)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default="all", help='"all", "none" or some of torch_tpu,torch_xla (default: all)')
    parser.add_argument(
        "--against", type=Path, metavar="FOLDER", help="a built checkout of another commit, to compare with"
    )
    parser.add_argument("--rounds", type=int, default=7, help="rounds of each contender, alternating (default: 7)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default: 2)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--serve", nargs=3, metavar=("SYSTEM", "MODE", "WORK"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        measure(options.serve[0], options.serve[1])
        return 0

    contenders = [each for each in chosen(options.peers, options.against) if each.system != "jax"]
    contenders.append(Contender("torch CPU compile", "cpu", "compile"))
    figures = alternate(contenders, Path(__file__), "add", options.rounds, options.threads)
    print(f"\nx + y, 8x8 float32, {CHAIN} in a chain: median of {options.rounds} alternating rounds, us per operator")
    print(f"{'':<20}{'handed over':>14}{'waited for':>14}")
    for name, answer in figures.items():
        print(f"{name:<20}{answer['operator_us']:>14.2f}{answer['with_wait_us']:>14.2f}")
    compiled, inductor = figures.get("torchtpu compile"), figures.get("torch CPU compile")
    if compiled and inductor:
        print(f"torchtpu compile / torch CPU compile: {compiled['operator_us'] / inductor['operator_us']:.2f}")
    for mode in ("strict", "fused"):
        ours, theirs = figures.get(f"torchtpu {mode}"), figures.get(f"torch_tpu {mode}")
        if ours and theirs:
            print(f"torchtpu {mode} / torch_tpu {mode}: {ours['operator_us'] / theirs['operator_us']:.2f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=2) + "\n")
    return 0 if "torchtpu strict" in figures else 1


if __name__ == "__main__":
    sys.exit(main())
