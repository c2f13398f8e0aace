"""Judges a case with padding, as sizes that change have it: in one dimension of one tensor at a time.

The padding is behind the valid elements, or between them where the dimension was merged of two.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple
from unittest import mock

import torch
from torch import Tensor

from tests.conformance.places import Place

MODE = "padded"
DTYPES = ("float32",)
DIRECTIONS = ("forward", "backward")
# The padding of a dimension.
PADDING = 3
# PyTorch's sizes in samples, and products near them, which a merged dimension can have.
SIZES = {"S": (5, 6), "XS": (3, 4)}


class Form(NamedTuple):
    """Where the padding is: a tensor by its place among the inputs, and its dimension."""

    tensor: int
    dim: int
    is_merged: bool

    def __str__(self) -> str:
        merged = ", which two were merged to" if self.is_merged else ""
        return f"padding in dimension {self.dim}{merged} of tensor {self.tensor}"


@dataclasses.dataclass(frozen=True)
class PaddedPlace(Place):
    """The device, with padding in one dimension of one input."""

    form: Form | None = None
    possible: list[list[Form]] = dataclasses.field(default_factory=list)
    """The forms of each tensor that was put there."""

    def _put_tensor(self, tensor: Tensor) -> Tensor:
        number = len(self.possible)
        self.possible.append(list(_forms(number, tensor)))
        if self.form is None or self.form.tensor != number:
            return super()._put_tensor(tensor)
        sizes, axis = list(tensor.shape), self.form.dim
        if self.form.is_merged:
            sizes[axis : axis + 1] = [_factor(sizes[axis]), sizes[axis] // _factor(sizes[axis])]
            axis += 1
        put = super()._put_tensor(tensor.detach().reshape(sizes).clone())
        torch.tpu.mark_dynamic(put, axis, max=sizes[axis] + PADDING)
        return put.reshape(tensor.shape)


def _forms(number: int, tensor: Tensor) -> Iterator[Form]:
    is_plain = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    if is_plain and tensor.is_contiguous() and tensor.numel():
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                yield Form(number, dim, False)
            if _factor(size) > 1:
                yield Form(number, dim, True)


def _factor(size: int) -> int:
    """The smallest proper divisor above 1; 1 if there is none."""
    return next((factor for factor in range(2, size) if size % factor == 0), 1)


@contextmanager
def sizes_with_factors() -> Iterator[None]:
    """PyTorch's samples have sizes that are products."""
    lists = [each for name, each in list(sys.modules.items()) if name.startswith("torch.testing._internal")]
    with ExitStack() as stack:
        for each in lists:
            for name, (own, other) in SIZES.items():
                if getattr(each, name, None) == own:
                    stack.enter_context(mock.patch.object(each, name, other))
        yield


def judge(device: str, check: Callable[[Place], None]) -> None:
    """Checks a trial without padding, and in each form. An error names its form."""
    plain = PaddedPlace(device)
    check(plain)
    for form in (form for forms in plain.possible for form in forms):
        try:
            check(PaddedPlace(device, form=form))
        except Exception as error:
            raise type(error)(f"{form}: {error}") from error
