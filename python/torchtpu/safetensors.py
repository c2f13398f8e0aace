"""`safetensors.safe_open(..., device="tpu")`.

safetensors knows devices by their names and refuses others. It also takes an index, which means the device of the
accelerator in use. So the function that stands for `safe_open` gives it the index of a tpu device. `load_file` and
`load_model` call it. `docs/upstream` has the change to safetensors that would end this file.

safetensors makes a tensor of bytes, and shows them in the tensor's type. The device keeps one element type for a
storage, so the tensors that a file gives get theirs once.

safetensors is not imported here: its function is replaced after the user's import of it.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from torchtpu.when_imported import call_when_imported


def take_device(name: str) -> None:
    """Makes safetensors take devices of the type `name`, now or when it is imported."""
    call_when_imported("safetensors", lambda module: _replace(module, name))


def _replace(module: Any, name: str) -> None:
    safetensors_open = getattr(module, "safe_open", None)
    if safetensors_open is None:
        return

    @functools.wraps(safetensors_open, updated=())
    def safe_open(filename: Any, framework: Any, device: Any = "cpu", **others: Any) -> Any:
        if isinstance(device, str) and device.partition(":")[0] == name:
            place = torch.device(device)
            device = torch.accelerator.current_device_index() if place.index is None else place.index
        file = safetensors_open(filename, framework, device, **others)
        return _File(file) if isinstance(device, int) else file

    module.safe_open = safe_open


class _Wrapped:
    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


class _File(_Wrapped):
    """A file that is open for reading onto an accelerator."""

    def __enter__(self) -> _File:
        self._wrapped.__enter__()
        return self

    def __exit__(self, *error: object) -> Any:
        return self._wrapped.__exit__(*error)

    def get_tensor(self, name: str) -> Any:
        return _with_own_type(self._wrapped.get_tensor(name))

    def get_tensors(self) -> dict[str, Any]:
        return {name: _with_own_type(value) for name, value in self._wrapped.get_tensors().items()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._wrapped.get_slice(name))


class _Slice(_Wrapped):
    """A tensor of a file, of which a part may be read."""

    def __getitem__(self, index: Any) -> Any:
        return _with_own_type(self._wrapped[index])


def _with_own_type(tensor: Any) -> Any:
    """The tensor on a storage with the tensor's element type, if it is not a tensor of bytes."""
    if not isinstance(tensor, torch.Tensor) or tensor.dtype == torch.uint8 or tensor.device.type != "tpu":
        return tensor
    typed = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return typed.set_(tensor.untyped_storage(), tensor.storage_offset(), tensor.size(), tensor.stride())
