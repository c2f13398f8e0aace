"""`torch_tpu._internal.utils.hardware`: the kind of the TPU."""

from __future__ import annotations

from torchtpu.kernels.store import target


def get_tpu_device_name() -> str:
    """JAX's name for the kind of device. Without a TPU it is that of a v5e, which kernels are then traced for."""
    return target()[1] or "TPU v5 lite"
