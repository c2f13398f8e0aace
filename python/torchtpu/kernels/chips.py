"""Which TPU Pallas is told of while a kernel is traced: JAX itself sees none, for the devices are torch's."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from jax._src.pallas.mosaic import tpu_info

# What is not known is taken for this one.
USUAL = tpu_info.ChipVersion("v5e")
_current: contextvars.ContextVar[Any] = contextvars.ContextVar("chip", default=USUAL)


@contextlib.contextmanager
def tracing_for(chip: str) -> Iterator[None]:
    """Within it kernels that ask are told of a chip: JAX's name of one, such as "v6e", or a device's kind."""
    found = next((each for each in tpu_info.ChipVersion if each.value == chip), None)
    version = found or tpu_info.chip_version_from_device_kind(chip) or USUAL
    tpu_info.registry.setdefault("cpu", _info)
    token = _current.set(version)
    try:
        yield
    finally:
        _current.reset(token)


def _info() -> Any:
    return tpu_info.get_tpu_info_for_chip(_current.get(), 1)
