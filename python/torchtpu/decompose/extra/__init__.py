"""Decompositions that PyTorch lacks, or writes in a form that the table should not have to know.

Each function takes the arguments of its operator and calls operators that have rows.
"""

from torchtpu.decompose.extra import (
    attention,
    compressed,
    convolutions,
    fused_attention,
    grouped,
    histograms,
    kernels,
    optimizers,
    prims,
    segments,
)
from torchtpu.decompose.extra.registry import EXTRA

__all__ = [
    "EXTRA",
    "attention",
    "compressed",
    "convolutions",
    "fused_attention",
    "grouped",
    "histograms",
    "kernels",
    "optimizers",
    "prims",
    "segments",
]
