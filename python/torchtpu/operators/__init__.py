"""Operators that are not a single row of the table.

    decompositions/  functions of operators that have rows; each is traced once per signature, into one program
    attention/       the same for attention: layers.py (modules in evaluation), fused.py (flash and efficient
                     attention), blocks.py (flex attention), efficient.py (a kernel that returns numbers as well),
                     paged.py (the operator of serving)
    grouped.py       grouped matrix products in eager modes
    recurrent.py     layers of recurrent networks, as loops over time
    sequences.py     packed sequences
    windows.py       the Kaiser window
    data_sized.py    kernels whose results have a size that depends on data
    sparse/          kernels for sparse tensors
    nested.py        kernels for nested tensors of the strided layout
    layouts.py       finds the kernel for a call with sparse or nested tensors
    registry.py      the decompositions by operator

An operator with a row is in the core, under `crates/aten/src/ops`.
"""

from __future__ import annotations


def register() -> None:
    """Registers the kernels written in Python before those of the table: they take precedence."""
    from torchtpu.operators import data_sized, grouped, recurrent, sequences, windows
    from torchtpu.operators.attention import efficient, paged

    data_sized.register()
    efficient.register()
    grouped.register()
    paged.register()
    recurrent.register()
    sequences.register()
    windows.register()
