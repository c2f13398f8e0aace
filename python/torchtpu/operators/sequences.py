"""Packed sequences: the valid elements of a batch of sequences, time step by time step.

PyTorch's kernels copy a part of the batch for each length. Here each direction is one gather, whose positions the host
computes from the sizes of the batch at each step. The number of programs does not depend on the lengths.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_libraries: list[torch.library.Library] = []


def register() -> None:
    """Registers the kernels before PyTorch's, which loop over the lengths."""
    aten = torch.library.Library("aten", "IMPL")
    _libraries.append(aten)
    aten.impl("_pack_padded_sequence", _pack, "PrivateUse1")
    for key in ("AutogradPrivateUse1", "PrivateUse1"):
        aten.impl("_pack_padded_sequence_backward", _pack_backward, key)
        aten.impl("_pad_packed_sequence", _pad, key)


class Packing:
    """Where the elements of packed sequences are in a padded batch.

    Args:
        batch_sizes: how many sequences have an element at each time step, [time] (int64, on the CPU, descending)
        device: where the sequences are
        time: the number of time steps of the padded batch, if it has more
    """

    def __init__(self, batch_sizes: Tensor, device: torch.device, time: int | None = None) -> None:
        steps, batch = batch_sizes.shape[0], int(batch_sizes[0])
        starts = batch_sizes.cumsum(0) - batch_sizes
        sample = torch.arange(batch)
        is_valid = sample < batch_sizes[:, None]
        self.lengths_on_host = is_valid.sum(0)
        places = torch.where(is_valid, starts[:, None] + sample, -1)
        if time is not None and time > steps:
            places = torch.cat([places, places.new_full((time - steps, batch), -1)])
        when = torch.repeat_interleave(torch.arange(steps), batch_sizes)
        self._device, self._places = device, places
        self._when, self._which = when, torch.arange(when.shape[0]) - starts[when]
        self._uploaded: dict[str, Tensor] = {}

    @property
    def places(self) -> Tensor:
        """The place of each element of the padded batch among the packed ones, [time, batch]; -1 for padding."""
        return self._upload("places", self._places)

    @property
    def lengths(self) -> Tensor:
        """The length of each sequence, [batch]."""
        return (self.places >= 0).sum(0)

    def unpacked(self, data: Tensor, padding: float) -> Tensor:
        """The padded batch of `data`, [time, batch, ...]."""
        if is_transformed():
            return self._unpacked(data, padding)
        result: Tensor = _Unpacked.apply(self, data, padding)
        return result

    def packed(self, padded: Tensor) -> Tensor:
        """The valid elements of a padded batch, [elements, ...]."""
        if is_transformed():
            return self._packed(padded)
        result: Tensor = _Packed.apply(self, padded)
        return result

    def _unpacked(self, data: Tensor, padding: float) -> Tensor:
        places = self.places
        is_valid = (places >= 0).reshape(*places.shape, *(1 for _ in data.shape[1:]))
        return torch.where(is_valid, data[places], padding)

    def _packed(self, padded: Tensor) -> Tensor:
        return padded[self._upload("when", self._when), self._upload("which", self._which)]

    def _upload(self, name: str, value: Tensor) -> Tensor:
        if name not in self._uploaded:
            self._uploaded[name] = value.to(self._device)
        return self._uploaded[name]


class _Unpacked(torch.autograd.Function):
    """A gather, with a gather as its derivative: each packed element is at one place of the batch."""

    @staticmethod
    def forward(ctx: Any, packing: Packing, data: Tensor, padding: float) -> Tensor:
        ctx.packing = packing
        return packing._unpacked(data, padding)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor, None]:
        return None, ctx.packing.packed(grads[0]), None


class _Packed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, packing: Packing, padded: Tensor) -> Tensor:
        ctx.packing = packing
        return packing._packed(padded)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, Tensor]:
        return None, ctx.packing.unpacked(grads[0], 0)


def is_transformed() -> bool:
    """Whether functorch's transforms or forward-mode derivatives are in effect, which take no autograd function."""
    return torch._C._functorch.peek_interpreter_stack() is not None or torch.autograd.forward_ad._current_level >= 0


def _pack(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """[time, batch, ...] to [elements, ...], and the sizes of the batch at each time step."""
    # PyTorch's kernel checks the arguments, and computes the sizes.
    form = torch.empty_strided(input.shape, input.stride(), device="meta")
    _, batch_sizes = torch.ops.aten._pack_padded_sequence(form, lengths, batch_first)
    steps = input.transpose(0, 1) if batch_first else input
    return Packing(batch_sizes, input.device).packed(steps), batch_sizes


def _pack_backward(grad: Tensor, input_size: list[int], batch_sizes: Tensor, batch_first: bool) -> Tensor:
    time = input_size[1] if batch_first else input_size[0]
    padded = Packing(batch_sizes, grad.device, time).unpacked(grad, 0)
    return padded.transpose(0, 1) if batch_first else padded


def _pad(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int
) -> tuple[Tensor, Tensor]:
    steps = batch_sizes.shape[0]
    if total_length > 0 and total_length < steps:
        raise RuntimeError(
            f"Expected total_length to be at least the length of the longest sequence in input, but got "
            f"total_length={total_length} and max sequence length being {steps}"
        )
    packing = Packing(batch_sizes, data.device, total_length if total_length > 0 else None)
    padded = packing.unpacked(data, padding_value)
    return padded.transpose(0, 1) if batch_first else padded, packing.lengths_on_host
