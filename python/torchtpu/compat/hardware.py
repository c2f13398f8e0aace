"""`torch_tpu._internal.utils.hardware`: which TPU there is."""

from __future__ import annotations

from torchtpu.kernels.store import target


def get_tpu_device_name() -> str:
    """The device's kind, as JAX knows it; where there is no TPU, that of a v5e, which kernels are then traced for."""
    return target()[1] or "TPU v5 lite"
