"""accelerate under torchrun, where `ACCELERATE_TORCH_DEVICE` names a tpu device.

accelerate makes a process group only for the devices in a list of its own. On others each process would train a model
of its own. So the method that chooses the backend gives torchtpu's where the variable names a device of the type.
`docs/upstream` has the change to accelerate that would end this file.

accelerate is not imported here: its method is replaced after the user's import of it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from torchtpu.when_imported import call_when_imported


def take_device(name: str) -> None:
    """Makes accelerate train on devices of the type `name` under torchrun, now or when it is imported."""
    call_when_imported("accelerate.state", lambda module: _replace(module, name))


def _replace(module: Any, name: str) -> None:
    state, types = getattr(module, "PartialState", None), getattr(module, "DistributedType", None)
    prepare = getattr(state, "_prepare_backend", None)
    # A type for which accelerate calls no functions of another device.
    kind = getattr(types, "MULTI_NEURON", None) or getattr(types, "MULTI_XPU", None)
    if state is None or prepare is None or kind is None:
        return

    @functools.wraps(prepare)
    def _prepare_backend(self: Any, cpu: bool = False, sagemaker_dp: Any = False, backend: str | None = None) -> Any:
        local = os.environ.get("LOCAL_RANK")
        if cpu or sagemaker_dp or local is None or self.device is None or self.device.type != name:
            return prepare(self, cpu, sagemaker_dp, backend)
        self.device = torch.device(name, int(local))
        return backend or name, kind

    state._prepare_backend = _prepare_backend
