"""Operators with a result, or a tensor to write, whose size depends on data, and which the table cannot lower.

The table lowers operators with an upper bound (`nonzero` has at most as many rows as there are elements) and fresh
results. These kernels are for the others: one number is read from the device first, and rows compute the rest.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_kernels: list[torch.library.Library] = []


def register() -> None:
    """Registers the kernels before those of the table: they take precedence."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("bincount", _bincount, "PrivateUse1")
    library.impl("repeat_interleave.Tensor", _repeat_interleave, "PrivateUse1")
    library.impl("masked_scatter", _masked_scatter, "PrivateUse1")
    library.impl("masked_scatter_", lambda self, *given: self.copy_(_masked_scatter(self, *given)), "PrivateUse1")
    library.impl("_ctc_loss.Tensor", _ctc_loss, "PrivateUse1")
    library.impl("_ctc_loss_backward.Tensor", _ctc_loss_backward, "PrivateUse1")
    library.impl("_fused_moving_avg_obs_fq_helper", _observe_and_round, "PrivateUse1")
    _kernels.append(library)


def _bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    if self.dim() != 1:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if self.is_floating_point() or self.is_complex() or self.dtype == torch.bool:
        # PyTorch has no kernel for these dtypes on any device.
        raise NotImplementedError(f"bincount is not implemented for {self.dtype}")
    if minlength < 0:
        raise RuntimeError("minlength should be >= 0")
    if self.numel() == 0:
        return torch.zeros(minlength, dtype=torch.int64, device=self.device)
    if weights is not None and weights.shape != self.shape:
        raise RuntimeError("weights should be 1-d and have the same length as input")
    lowest, highest = torch.stack(self.aminmax()).tolist()
    if lowest < 0:
        raise RuntimeError("bincount only supports 1-d non-negative integral inputs.")
    if weights is None:
        weights = torch.ones((), dtype=torch.int64, device=self.device).expand(self.shape)
    elif weights.dtype != torch.float32:
        weights = weights.to(torch.float64)
    return weights.new_zeros(max(minlength, highest + 1)).index_add_(0, self.to(torch.int64), weights)


def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
    if mask.dtype != torch.bool:
        raise RuntimeError(f"masked_scatter_ only supports boolean masks, but got mask with dtype {mask.dtype}")
    if self.dtype != source.dtype:
        raise RuntimeError(
            f"masked_scatter: expected self and source to have same dtypes but got {self.dtype} and {source.dtype}"
        )
    mask, self = torch.broadcast_tensors(mask, self)
    if source.numel() < mask.numel() and source.numel() < int(mask.sum()):
        raise RuntimeError("Number of elements of source < number of ones in mask")
    if source.numel() == 0:
        return self.clone()
    positions = (mask.flatten().cumsum(0) - 1).clamp(0, source.numel() - 1)
    return torch.where(mask, source.flatten()[positions].view(mask.shape), self)


def _repeat_interleave(repeats: Tensor, *, output_size: int | None = None) -> Tensor:
    if repeats.dim() != 1:
        raise RuntimeError("repeat_interleave only accept 1D vector as repeat")
    if repeats.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("repeats has to be Long or Int tensor")
    ends = repeats.cumsum(0)
    if output_size is None:
        output_size, lowest = torch.stack((ends[-1], repeats.min())).tolist() if repeats.numel() > 0 else (0, 0)
        if lowest < 0:
            raise RuntimeError("repeats can not be negative")
    elif repeats.numel() > 0:
        torch._assert_async(ends[-1] == output_size, "allocated size does not match required size")
    # Parts of one tensor: their size is an input of the programs that take them.
    room = 1 << (output_size - 1).bit_length() if output_size > 0 else output_size
    positions = torch.arange(room, device=repeats.device)[:output_size]
    return torch.searchsorted(ends, positions, right=True).to(repeats.dtype)


def _ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *rest: Any
) -> tuple[Tensor, Tensor]:
    # The second result has two states for each label of the longest target, and one more.
    lengths = _lengths(input_lengths, "input_lengths"), _lengths(target_lengths, "target_lengths")
    return torch.ops.aten._ctc_loss(log_probs, targets, *lengths, *rest)


def _ctc_loss_backward(
    grad: Tensor, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, *rest: Any
) -> Tensor:
    lengths = _lengths(input_lengths, "input_lengths"), _lengths(target_lengths, "target_lengths")
    return torch.ops.aten._ctc_loss_backward(grad, log_probs, targets, *lengths, *rest)


def _lengths(lengths: Tensor, name: str) -> list[int]:
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise RuntimeError(f"{name} must be integral")
    return lengths.tolist()


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
    # The state tensors of an observer by channel are resized at its first observation.
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
