"""Operators with dtypes that PyTorch supports neither on the CPU nor on CUDA. The device refuses them as the CPU
does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.conformance.places import CPU, Place, tensors_of

# The dtypes whose samples are cast: the first that an operator supports.
SOURCES = (torch.float32, torch.int64, torch.bool, torch.complex64)
# For these the device may compute where the CPU does not: it computes in float32 and rounds.
ROUNDED = (torch.float16, torch.bfloat16)
# Parts of error messages that were not written for users.
OF_THE_COMPILER = ("PJRT_", "internal error", "stablehlo")


def is_refused(info: OpInfo, dtype: torch.dtype) -> bool:
    """Whether PyTorch does not list a dtype, and the device has no reason to support it."""
    supported = info.supported_dtypes("cpu") | info.supported_dtypes("cuda")
    return dtype not in supported and not (dtype in ROUNDED and torch.float32 in supported)


def source_of(info: OpInfo) -> torch.dtype:
    """A dtype of PyTorch's samples."""
    supported = info.supported_dtypes("cpu")
    return next(each for each in SOURCES if each in supported)


def cast(sample: SampleInput, source: torch.dtype, dtype: torch.dtype) -> SampleInput:
    """The sample with its tensors of one dtype converted to another."""

    def converted(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.dtype == source else value

    return sample.transform(converted)


def refusal(program: Callable[[Place], Any]) -> Callable[[Place], str] | None:
    """A program that reports whether another one is refused with the CPU's error; None if the CPU does not refuse
    it."""
    try:
        program(CPU)
    except Exception as error:
        return refused_with(type(error), program)
    return None


def refused_with(kind: type[Exception], program: Callable[[Place], Any]) -> Callable[[Place], str]:
    """A program that reports whether another one is refused with an error of this kind."""

    def refused(place: Place) -> str:
        try:
            for result in tensors_of(program(place)):
                result.cpu()
        except kind as error:
            return str(error) if any(word in str(error) for word in OF_THE_COMPILER) else "refused"
        return "computed"

    return refused
