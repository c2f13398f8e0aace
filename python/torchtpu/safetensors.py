"""`safetensors.safe_open(..., device="tpu")`.

safetensors knows devices by their names and refuses others. It also takes an index, which means the device of the
accelerator in use. So the function that stands for `safe_open` gives it the index of a tpu device. `load_file` and
`load_model` call it. `docs/upstream` has the change to safetensors that would end this file.

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
        return safetensors_open(filename, framework, device, **others)

    module.safe_open = safe_open
