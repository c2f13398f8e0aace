"""Tells Pallas the TPU's version while a kernel is traced. JAX itself sees no TPU: the devices belong to torch."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

from jax._src.pallas.mosaic import tpu_info

# The version for an unknown chip.
USUAL = tpu_info.ChipVersion("v5e")
_current: contextvars.ContextVar[Any] = contextvars.ContextVar("chip", default=USUAL)


@contextlib.contextmanager
def tracing_for(chip: str) -> Iterator[None]:
    """A context in which Pallas sees `chip`: a name such as "v6e" or "tpu7x" (JAX's "7x"), or a device's kind."""
    found = next((each for each in tpu_info.ChipVersion if each.value == chip.removeprefix("tpu")), None)
    version = found or tpu_info.chip_version_from_device_kind(chip) or USUAL
    tpu_info.registry.setdefault("cpu", _info)
    token = _current.set(version)
    try:
        yield
    finally:
        _current.reset(token)


def _info() -> Any:
    return tpu_info.get_tpu_info_for_chip(_current.get(), 1)
