"""The operator of quantization-aware training that gives its observer's tensors their sizes when it first runs."""

from __future__ import annotations

import torch
from torch import Tensor

_kernels: list[torch.library.Library] = []


def register() -> None:
    """Registers the kernel, before those that the table gives: it takes precedence."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_fused_moving_avg_obs_fq_helper", _observe_and_round, "PrivateUse1")
    _kernels.append(library)


def _observe_and_round(
    self: Tensor,
    observer_on: Tensor,
    fake_quant_on: Tensor,
    running_min: Tensor,
    running_max: Tensor,
    scale: Tensor,
    zero_point: Tensor,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> tuple[Tensor, Tensor]:
    state = (running_min, running_max, scale, zero_point)
    if per_row_fake_quant and running_min.numel() == 0 and observer_on.item():
        for each, start in zip(state, (torch.inf, -torch.inf, 1, 0), strict=True):
            each.resize_(self.size(ch_axis)).fill_(start)
    rounded, mask, *followed = torch.ops.aten._fused_moving_avg_obs_fq_helper_functional(
        self,
        observer_on,
        fake_quant_on,
        *state,
        averaging_const,
        quant_min,
        quant_max,
        ch_axis,
        per_row_fake_quant,
        symmetric_quant,
    )
    for each, new in zip(state, followed, strict=True):
        each.copy_(new)
    return rounded, mask
