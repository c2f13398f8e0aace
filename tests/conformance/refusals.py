"""Operators with dtypes that PyTorch takes neither on the CPU nor on CUDA: the device refuses them as the CPU does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.conformance.places import CPU, Place, tensors_of

# The dtypes whose samples are cast: the first that an operator takes.
SOURCES = (torch.float32, torch.int64, torch.bool, torch.complex64)
# With these the device may compute where the CPU does not: they are float32 there, rounded.
ROUNDED = (torch.float16, torch.bfloat16)
# Words of errors that nobody has written for users.
OF_THE_COMPILER = ("PJRT_", "internal error", "stablehlo")


def is_refused(info: OpInfo, dtype: torch.dtype) -> bool:
    """Whether PyTorch says that it does not take a dtype that the device has no better answer for."""
    supported = info.supported_dtypes("cpu") | info.supported_dtypes("cuda")
    return dtype not in supported and not (dtype in ROUNDED and torch.float32 in supported)


def source_of(info: OpInfo) -> torch.dtype:
    """A dtype that PyTorch has samples of."""
    supported = info.supported_dtypes("cpu")
    return next(each for each in SOURCES if each in supported)


def cast(sample: SampleInput, source: torch.dtype, dtype: torch.dtype) -> SampleInput:
    """The sample with its tensors of one dtype in another."""

    def converted(value: Any) -> Any:
        return value.to(dtype) if isinstance(value, Tensor) and value.dtype == source else value

    return sample.transform(converted)


def refusal(program: Callable[[Place], Any]) -> Callable[[Place], str] | None:
    """A program that says whether another one is refused as the CPU refuses it; None where it does not."""
    try:
        program(CPU)
    except Exception as error:
        kind = type(error)
    else:
        return None

    def refused(place: Place) -> str:
        try:
            for result in tensors_of(program(place)):
                result.cpu()
        except kind as error:
            return str(error) if any(word in str(error) for word in OF_THE_COMPILER) else "refused"
        return "computed"

    return refused
