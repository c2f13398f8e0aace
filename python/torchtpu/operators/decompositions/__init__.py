"""Decompositions that PyTorch lacks, or writes in a form that is not suited to the table.

Each function takes the arguments of its operator and calls operators with rows. An import of this package
registers all of them, including those of attention.
"""

from torchtpu.operators.attention import fused, layers
from torchtpu.operators.decompositions import (
    compressed,
    convolutions,
    grouped,
    histograms,
    kernels,
    optimizers,
    packed_weights,
    prims,
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
    "packed_weights",
    "prims",
]
