"""Decompositions that PyTorch lacks, or writes in a form that the table should not have to know.

Each function takes the arguments of its operator and calls operators that have rows. An import of this package
registers all of them, those of attention included.
"""

from torchtpu.operators.attention import fused, layers
from torchtpu.operators.decompositions import (
    compressed,
    convolutions,
    grouped,
    histograms,
    kernels,
    optimizers,
    prims,
    segments,
)
from torchtpu.operators.registry import EXTRA

__all__ = [
    "EXTRA",
    "compressed",
    "convolutions",
    "fused",
    "grouped",
    "histograms",
    "kernels",
    "layers",
    "optimizers",
    "prims",
    "segments",
]
