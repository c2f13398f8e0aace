#!/usr/bin/env python3
"""The loss over a large vocabulary: a head and cross entropy, forward and backward.

2,048 rows of width 64, 16,000 classes, float32. "logits" is `torch.nn.functional.linear_cross_entropy` as it stands,
which holds the logits; "chunks" is the same with `LinearCrossEntropyOptions(batch_chunk_size=256)`, which holds
those of 256 rows. Peak memory without inputs, and the median time of a step.
"""

from __future__ import annotations

import argparse
import time
from statistics import median

import torch
from torch.nn.functional import linear_cross_entropy
from torch.nn.modules.linear_cross_entropy_options import LinearCrossEntropyOptions

ROWS, WIDTH, CLASSES = 2048, 64, 16_000
FORMS = {"logits": None, "chunks": LinearCrossEntropyOptions(batch_chunk_size=256, allow_retain_graph=True)}


def measure(form: str, is_compiled: bool, steps: int) -> tuple[float, float]:
    """Peak bytes and seconds of a step."""
    torch.manual_seed(0)
    rows = torch.randn(ROWS, WIDTH, device="tpu", requires_grad=True)
    head = torch.randn(CLASSES, WIDTH, device="tpu", requires_grad=True)
    target = torch.randint(0, CLASSES, (ROWS,), device="tpu")

    def loss() -> torch.Tensor:
        return linear_cross_entropy(rows, head, target, options=FORMS[form])

    run = torch.compile(loss, fullgraph=True) if is_compiled else loss
    torch.tpu.synchronize()  # type: ignore[attr-defined]
    torch.tpu.reset_peak_memory_stats()  # type: ignore[attr-defined]
    before = torch.tpu.memory_allocated()  # type: ignore[attr-defined]
    run().backward()
    torch.tpu.synchronize()  # type: ignore[attr-defined]
    peak = torch.tpu.max_memory_allocated() - before  # type: ignore[attr-defined]
    seconds = []
    for _ in range(steps):
        rows.grad = head.grad = None
        start = time.perf_counter()
        run().backward()
        torch.tpu.synchronize()  # type: ignore[attr-defined]
        seconds.append(time.perf_counter() - start)
    return peak, median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each form (5)")
    steps = parser.parse_args().steps
    print(f"{'':16}{'logits':>22}{'chunks':>22}")
    for mode, is_compiled in (("strict", False), ("fused", False), ("strict", True)):
        torch.tpu.eager_mode = mode  # type: ignore[attr-defined]
        cells = [measure(form, is_compiled, steps) for form in FORMS]
        name = "torch.compile" if is_compiled else mode
        print(
            f"{name:16}" + "".join(f"{peak / 1e6:10.0f} MB {seconds * 1e3:6.0f} ms" for peak, seconds in cells),
            flush=True,
        )


if __name__ == "__main__":
    main()
