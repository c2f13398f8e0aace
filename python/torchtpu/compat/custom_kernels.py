"""`torch_tpu._internal.pallas.tpu_torch_pallas`: exported modules, called by a name and a key."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from torchtpu.kernels.calls import Call, module_call
from torchtpu.pallas import KERNEL

_calls: dict[tuple[str, str], Call] = {}


def lookup_custom_kernel(name: str, key: str) -> bool:
    """Whether a kernel is registered."""
    return (name, key) in _calls


def register_custom_kernel(name: str, key: str, serialized_mlir_module: bytes) -> None:
    """Registers a module that `jax.export` serialized."""
    from torchtpu.kernels.tracing import read_module

    add(name, key, module_call(name, read_module(serialized_mlir_module)))


def add(name: str, key: str, call: Call) -> None:
    """Registers a call under a name and a key."""
    _calls[name, key] = call


def witness(device: str = "tpu") -> torch.Tensor:
    """What a kernel without tensors is called with, since a call runs on the device of its tensors."""
    return torch.zeros((), device=device)


def call_custom_kernel(
    name: str,
    key: str,
    *,
    inputs: Sequence[torch.Tensor],
    output_shapes: Sequence[torch.Tensor],
    donate_argnums: Sequence[int] = (),
    device_assignment: Sequence[int] = (),
) -> list[torch.Tensor]:
    """Calls a kernel. Returns new tensors.

    Raises KeyError for a kernel that is not registered, and TypeError if the results are not like `output_shapes`.
    """
    results = KERNEL(list(inputs) or [witness()], _calls[name, key].name)
    if len(results) != len(output_shapes):
        raise TypeError(f"{name} returns {len(results)} tensors, not {len(output_shapes)}")
    # JAX's integers may have other widths than the tensors that are wanted.
    return [
        result if result.dtype == like.dtype else result.to(like.dtype)
        for result, like in zip(results, output_shapes, strict=True)
    ]
