"""Grouped matrix products in eager modes.

PyTorch's composite reads where groups end on the host, and multiplies them one by one. An operator of our own has the
decomposition that compiled graphs use (`decompositions/grouped.py`).
"""

from __future__ import annotations

import torch

_OWN = (
    "grouped_mm(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, ScalarType? out_dtype=None) -> Tensor"
)
_libraries: list[torch.library.Library] = []


def register() -> None:
    """Registers the kernel. It takes precedence over PyTorch's composite."""
    own, aten = torch.library.Library("torchtpu", "FRAGMENT"), torch.library.Library("aten", "IMPL")
    _libraries.extend((own, aten))
    own.define(_OWN)
    torch.library.register_fake("torchtpu::grouped_mm", torch.ops.aten._grouped_mm.default, lib=own)
    aten.impl("_grouped_mm", torch.ops.torchtpu.grouped_mm.default, "PrivateUse1")
