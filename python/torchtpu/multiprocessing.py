"""tpu tensors in the queues, pipes and arguments of `torch.multiprocessing`.

PyTorch sends a tensor of the CPU as shared memory, and one of CUDA as a handle of its memory. The memory of a tpu
device belongs to one process: PJRT has no handles of it. So the elements are sent, and the process that receives them
copies them to its own device. The two processes share nothing.

The elements go through the pipe. Shared memory of the CPU would have to stay open until a process that is being started
has opened it, which nothing here can know. It saves no time up to 4 MB, and half of the time for 100 MB.
"""

from __future__ import annotations

import ctypes
import functools
import warnings
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions
from torch.nn import Parameter


def take_device(name: str) -> None:
    """Makes `torch.multiprocessing` send tensors of devices of the type `name`."""

    def reduce(tensor: torch.Tensor) -> tuple[Any, ...]:
        # PyTorch's function refuses what is no leaf.
        if tensor.device.type != name or (tensor.requires_grad and not tensor.is_leaf):
            return reductions.reduce_tensor(tensor)
        if tensor.layout == torch.strided and not tensor.is_nested:
            return _received, _elements(tensor)
        whole = tensor.detach()
        if whole.is_nested:
            return _received_nested, (whole.unbind(),)
        if whole.layout == torch.sparse_coo:
            return _received_coo, (whole._indices(), whole._values(), whole.shape, whole.is_coalesced())
        has_rows = whole.layout in (torch.sparse_csr, torch.sparse_bsr)
        compressed = whole.crow_indices() if has_rows else whole.ccol_indices()
        plain = whole.col_indices() if has_rows else whole.row_indices()
        return _received_compressed, (compressed, plain, whole.values(), whole.shape, whole.layout)

    def reduce_storage(storage: Any) -> tuple[Any, ...]:
        if storage.device.type == name:
            raise RuntimeError(f"Cannot pickle {name} storage; try pickling a {name} tensor instead")
        return reductions.reduce_storage(storage)

    for kind in (torch.Tensor, Parameter):
        ForkingPickler.register(kind, reduce)
    ForkingPickler.register(torch.UntypedStorage, reduce_storage)


def _elements(tensor: torch.Tensor) -> tuple[Any, ...]:
    is_parameter = isinstance(tensor, Parameter)
    if is_parameter:
        _warn_once()
    value = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    data = ctypes.string_at(value.data_ptr(), value.nbytes)
    return data, value.dtype, value.shape, tensor.device, is_parameter, tensor.requires_grad


def _received_coo(indices: torch.Tensor, values: torch.Tensor, shape: torch.Size, is_coalesced: bool) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices, values, shape, is_coalesced=is_coalesced)


def _received_compressed(
    compressed: torch.Tensor, plain: torch.Tensor, values: torch.Tensor, shape: torch.Size, layout: torch.layout
) -> torch.Tensor:
    return torch.sparse_compressed_tensor(compressed, plain, values, shape, layout=layout)


def _received_nested(parts: tuple[torch.Tensor, ...]) -> torch.Tensor:
    return torch.nested.as_nested_tensor(list(parts), layout=torch.strided)


def _received(
    data: bytes,
    dtype: torch.dtype,
    shape: torch.Size,
    device: torch.device,
    is_parameter: bool,
    requires_grad: bool,
) -> torch.Tensor:
    """The tensor in the process that receives it, on the device of the same number if there is one, else on the
    current device."""
    elements = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(dtype) if data else torch.empty(0, dtype=dtype)
    has_device = device.index is not None and device.index < torch.accelerator.device_count()
    moved = elements.reshape(shape).to(device if has_device else torch.device(device.type))
    return Parameter(moved, requires_grad) if is_parameter else moved.requires_grad_(requires_grad)


@functools.cache
def _warn_once() -> None:
    warnings.warn(
        "a parameter on a tpu device is sent to another process as a copy: the processes do not share it, as they "
        "would share one of the CPU or of CUDA. Train one model in several processes with DistributedDataParallel",
        stacklevel=2,
    )
