"""What does it cost to write eight rows into a cache of 256 MB (of 128 MB in bfloat16)?

    python benches/cache_writes.py

The cache has the layout [page, head, position, width], and the rows are written at separated indices:
`cache[page, :, position] = rows`. The same is timed for `index_copy_` on a flat cache. Nothing may copy the cache.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch

PAGES, HEADS, POSITIONS, WIDTH, ROWS = 512, 8, 64, 256, 8


def milliseconds(call: Callable[[], object], repeats: int = 30) -> float:
    """The median time of a call and a wait."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        torch.tpu.synchronize()  # type: ignore[attr-defined]
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[3:])


def measure(dtype: torch.dtype) -> None:
    device = torch.device("tpu")
    cache = torch.zeros(PAGES, HEADS, POSITIONS, WIDTH, dtype=dtype, device=device)
    page = position = torch.arange(ROWS, device=device)
    rows = torch.randn(ROWS, HEADS, WIDTH, device=device).to(dtype)
    flat = torch.zeros(PAGES * POSITIONS, HEADS, WIDTH, dtype=dtype, device=device)

    def write(cache: torch.Tensor) -> None:
        cache[page, :, position] = rows

    compiled = torch.compile(write)
    for mode in ("strict", "fused"):
        with torch.tpu.set_eager_mode(mode):  # type: ignore[attr-defined]
            print(f"{dtype}, {mode}: {milliseconds(lambda: write(cache)):.3f} ms")
    print(f"{dtype}, compiled: {milliseconds(lambda: compiled(cache)):.3f} ms")
    print(f"{dtype}, flat, by index_copy_: {milliseconds(lambda: flat.index_copy_(0, page, rows)):.3f} ms")


def main() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        measure(dtype)


if __name__ == "__main__":
    main()
