#!/usr/bin/env python3
"""What libtpu's compiler gives to the SparseCores: lookups in large tables, their gradients, and bags, without a TPU.

Needs libtpu (`pip install libtpu`). Each program is compiled for one chip of each kind, and the compiler's own dump
says which operations run on the SparseCores. "lookup" is `embedding`, "gradient" its dense gradient, "bag" the mean
of 16 rows for each result. float32; the ids are int64.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Rows of the table, its width, and ids of a lookup.
SHAPES = ((1_000_000, 128, 65_536), (10_000_000, 64, 16_384), (50_257, 768, 8_192))
CHIPS = ("v5p:1x1x1", "v6e:1x1", "tpu7x:1x1x1")
OPERATIONS = ("lookup", "gradient", "bag")
# Results of the offloaded fusions in the final program, such as "%gather_offload_custom_fusion.4 = f32[65536,128]{".
OFFLOADED = re.compile(r"^\s*ROOT %(gather|scatter)_offload_custom_fusion\S* = (\w+\[[\d,]*\])", re.MULTILINE)


def text_of(operation: str, rows: int, width: int, ids: int) -> str:
    """The program. Runs in a process whose device holds no data."""
    import torch
    from torch.nn import functional

    table = torch.empty(rows, width, device="tpu")
    places = torch.zeros(ids, dtype=torch.long, device="tpu")
    gradient = torch.empty(ids, width, device="tpu")
    calls: dict[str, tuple[Any, ...]] = {
        "lookup": (functional.embedding, places, table),
        "gradient": (torch.ops.aten.embedding_dense_backward, gradient, places, rows, -1, False),
        "bag": (functional.embedding_bag, places.view(-1, 16), table),
    }
    return str(torch.tpu.stablehlo(*calls[operation], target="tpu"))  # type: ignore[attr-defined]


def compiled(chip: str, operation: str, shape: tuple[int, int, int]) -> list[str]:
    """The operations on SparseCores, by the compiler's dump."""
    with tempfile.TemporaryDirectory() as folder:
        dump = f"{os.environ.get('LIBTPU_INIT_ARGS', '')} --xla_jf_dump_to={folder} --xla_jf_dump_hlo_text=true"
        command = [sys.executable, __file__, "--child", chip, operation, *map(str, shape)]
        environment = {**os.environ, "TORCHTPU_DRY": chip, "LIBTPU_INIT_ARGS": dump}
        finished = subprocess.run(command, env=environment, capture_output=True, text=True)
        if finished.returncode:
            raise SystemExit(f"{chip} {operation} {shape}: {finished.stderr.strip().splitlines()[-1]}")
        texts = [path.read_text() for path in Path(folder).glob("*TLP-hlo.txt")]
    return sorted({f"{kind} {result}" for text in texts for kind, result in OFFLOADED.findall(text)})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chip", nargs="+", default=CHIPS, help=f"topologies of one chip ({' '.join(CHIPS)})")
    parser.add_argument("--child", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        from torchtpu import _C

        chip, operation, *shape = options.child
        _C.compile_ahead(text_of(operation, *map(int, shape)), chip)
        return
    for shape in SHAPES:
        rows, width, ids = shape
        print(f"table {rows:,} x {width}, {ids:,} ids")
        for operation in OPERATIONS:
            for chip in options.chip:
                found = compiled(chip, operation, shape)
                print(f"  {operation:10}{chip.split(':')[0]:8}{', '.join(found) or 'nothing'}", flush=True)


if __name__ == "__main__":
    main()
