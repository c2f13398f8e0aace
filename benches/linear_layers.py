"""What does a linear layer with few rows cost beside PyTorch's CPU backend?

    python benches/linear_layers.py

Times of `torch.nn.functional.linear` and ratios of medians: "tpu" in Strict mode beside "cpu", and beside `x @ w` on
"tpu" with a weight that is stored transposed, which is the least that XLA's program needs. Below 1, `linear` on "tpu"
is faster.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

import torch

SIZES = [(1024, 2816), (2816, 1024)]
ROWS = [1, 8, 64, 512]


def milliseconds(calls: Sequence[Callable[[], object]], rounds: int = 15) -> list[float]:
    """The median time of each call and a wait. The calls alternate."""
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds):
        for call, seen in zip(calls, times, strict=True):
            start = time.perf_counter()
            call()
            torch.tpu.synchronize()  # type: ignore[attr-defined]
            seen.append(1000 * (time.perf_counter() - start))
    return [statistics.median(seen[3:]) for seen in times]


@torch.no_grad()
def main() -> None:
    linear = torch.nn.functional.linear
    print("dtype            rows  inputs outputs   linear ms    cpu ms  to cpu  to stored")
    with torch.tpu.set_eager_mode("strict"):  # type: ignore[attr-defined]
        for dtype in (torch.float32, torch.bfloat16, torch.float16):
            for inputs, outputs in SIZES:
                for rows in ROWS:
                    x, w = torch.randn(rows, inputs, dtype=dtype), torch.randn(outputs, inputs, dtype=dtype)
                    tx, tw, stored = x.to("tpu"), w.to("tpu"), w.t().contiguous().to("tpu")
                    calls = [lambda: linear(tx, tw), lambda: linear(x, w), lambda: tx @ stored]  # noqa: B023
                    ours, cpu, least = milliseconds(calls)
                    shape = f"{str(dtype)[6:]:14} {rows:6} {inputs:7} {outputs:7}"
                    print(f"{shape} {ours:11.3f} {cpu:9.3f} {ours / cpu:7.2f} {ours / least:10.2f}")


if __name__ == "__main__":
    main()
