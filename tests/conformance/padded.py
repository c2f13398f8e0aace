"""Judges a case with padding, as sizes that change have it: in one dimension of one tensor at a time.

The padding is behind the valid elements, or between them where the dimension was merged of two. A second tensor may
have as much padding behind its dimensions of that size, or behind one of them, which may be another than the first's.
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
    size: int
    is_merged: bool
    second: int | None = None
    """Another tensor with dimensions of that size."""
    second_dim: int | None = None
    """The dimension of the second tensor with padding, if not all of that size have it."""

    @property
    def capacity(self) -> int:
        factor = _factor(self.size) if self.is_merged else 1
        return factor * (self.size // factor + PADDING)

    def __str__(self) -> str:
        where = "between" if self.is_merged else "behind"
        of_dim = "" if self.second_dim is None else f"dimension {self.second_dim} of "
        second = "" if self.second is None else f", and behind those of {of_dim}tensor {self.second}"
        return f"padding {where} the elements of dimension {self.dim} of tensor {self.tensor}{second}"


@dataclasses.dataclass(frozen=True)
class PaddedPlace(Place):
    """The device, with padding in one dimension of one input."""

    form: Form | None = None
    possible: list[list[Form]] = dataclasses.field(default_factory=list)
    """The forms of each tensor that was put there."""

    def _put_tensor(self, tensor: Tensor) -> Tensor:
        number, form = len(self.possible), self.form
        self.possible.append(list(_forms(number, tensor)))
        if form is None or number not in (form.tensor, form.second):
            return super()._put_tensor(tensor)
        sizes, axis = list(tensor.shape), form.dim
        if number == form.second:
            put = super()._put_tensor(tensor.detach().clone())
            for dim in {each.dim for each in self.possible[-1] if each.size == form.size}:
                if form.second_dim in (None, dim):
                    torch.tpu.mark_dynamic(put, dim, max=form.capacity)
            return put
        if form.is_merged:
            factor = _factor(form.size)
            sizes[axis : axis + 1] = [factor, form.size // factor]
            axis += 1
        put = super()._put_tensor(tensor.detach().reshape(sizes).clone())
        torch.tpu.mark_dynamic(put, axis, max=sizes[axis] + PADDING)
        return put.reshape(tensor.shape)

    def forms(self) -> Iterator[Form]:
        """All forms, with and without a second tensor."""
        for form in (form for forms in self.possible for form in forms):
            yield form
            same = (each for forms in self.possible for each in forms if each.size == form.size)
            others = [each for each in same if each.tensor != form.tensor]
            if form.is_merged:
                seconds = dict.fromkeys(each.tensor for each in others)
                yield from (form._replace(second=second) for second in seconds)
            else:
                plain = (each for each in others if not each.is_merged)
                yield from (form._replace(second=each.tensor, second_dim=each.dim) for each in plain)


def _forms(number: int, tensor: Tensor) -> Iterator[Form]:
    is_plain = tensor.layout == torch.strided and not (tensor.is_quantized or tensor.is_conj() or tensor.is_neg())
    if is_plain and tensor.is_contiguous() and tensor.numel():
        for dim, size in enumerate(tensor.shape):
            if size > 1:
                yield Form(number, dim, size, False)
            if _factor(size) > 1:
                yield Form(number, dim, size, True)


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
    for form in plain.forms():
        try:
            check(PaddedPlace(device, form=form))
        except Exception as error:
            raise type(error)(f"{form}: {error}") from error
