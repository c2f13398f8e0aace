"""`torch.Tensor.__dlpack_device__` of tpu tensors.

PyTorch's method compares the device's type with the text "privateuse1". A backend with a name of its own never has this
type, so `torch.from_dlpack(tensor)` and other consumers of DLPack got a ValueError. There is no hook before that
comparison. `docs/upstream` has the change to PyTorch that would end this file.

The other parts of the protocol are PyTorch's own. A capsule of a tpu tensor has the device type `kDLExtDev`: PyTorch
shares the memory, and libraries that do not know the device refuse it. A consumer that asks for the CPU gets a copy.
"""

from __future__ import annotations

import functools
from enum import IntEnum

import torch
from torch.overrides import has_torch_function_unary
from torch.utils import dlpack


def add_tensor_method(name: str) -> None:
    """Makes `torch.Tensor.__dlpack_device__` answer for tensors of the device type `name`."""
    pytorchs = torch.Tensor.__dlpack_device__

    @functools.wraps(pytorchs)
    def device_of(self: torch.Tensor) -> tuple[IntEnum, int]:
        if has_torch_function_unary(self) or self.device.type != name:
            return pytorchs(self)
        return dlpack.DLDeviceType.kDLExtDev, self.device.index

    torch.Tensor.__dlpack_device__ = device_of  # type: ignore[method-assign]
    # A class of PyTorch's that only allows the methods of DLPack knows them by identity. It is new in 2.15.
    read_only = getattr(dlpack, "ReadOnlyTensorWrapper", None)
    if read_only is not None:
        read_only._DLPACK_ALLOWED |= {device_of}
