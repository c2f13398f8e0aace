"""The Kaiser window. PyTorch computes it by a kernel of each of its own devices, and other windows by operators."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_libraries: list[torch.library.Library] = []


def register() -> None:
    library = torch.library.Library("aten", "IMPL")
    for name in ("kaiser_window", "kaiser_window.periodic", "kaiser_window.beta"):
        library.impl(name, _kaiser_window, "PrivateUse1")
    _libraries.append(library)


def _kaiser_window(window_length: int, periodic: bool = True, beta: float = 12.0, **options: Any) -> Tensor:
    """`torch.kaiser_window`, as in J. F. Kaiser, "Nonrecursive digital filter design using the I0-sinh window
    function", 1974."""
    # Checks the arguments.
    form = torch.kaiser_window(window_length, periodic, beta, **{**options, "device": "meta"})
    if window_length < 2:
        return torch.ones_like(form, device=options.get("device"))
    middle = (window_length - (0 if periodic else 1)) / 2
    wide = torch.float64 if form.dtype == torch.float64 else torch.float32
    place = torch.arange(window_length, dtype=wide, device=options.get("device")) / middle - 1
    window = torch.special.i0(beta * torch.sqrt(1 - place * place))
    return (window / torch.special.i0(torch.full_like(place, beta))).to(form.dtype)
