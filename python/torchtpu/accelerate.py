"""accelerate, where `ACCELERATE_TORCH_DEVICE` names a tpu device.

accelerate makes a process group only for the devices in a list of its own. On others each process would train a model
of its own. So the method that chooses the backend gives torchtpu's where the variable names a device of the type.

For `device_map="auto"` accelerate knows the memory of the devices in its list, and puts models on the CPU without one.
So the function that says how much memory there is also counts that of the tpu devices.

`docs/upstream` has the change to accelerate that would end this file. accelerate is not imported here: its functions
are replaced after the user's import of it.
"""

from __future__ import annotations

import functools
import os
from typing import Any

import torch

from torchtpu import _C
from torchtpu.when_imported import call_when_imported


def take_device(name: str) -> None:
    """Makes accelerate train on devices of the type `name` under torchrun, and place models on them, now or when it is
    imported."""
    call_when_imported("accelerate.state", lambda module: _replace_backend(module, name))
    call_when_imported("accelerate.utils.modeling", lambda module: _replace_memory(module, name))


def _replace_backend(module: Any, name: str) -> None:
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


def _replace_memory(module: Any, name: str) -> None:
    accelerates = getattr(module, "get_max_memory", None)
    if accelerates is None:
        return

    @functools.wraps(accelerates)
    def get_max_memory(max_memory: dict[int | str, Any] | None = None) -> dict[int | str, int]:
        if os.environ.get("ACCELERATE_TORCH_DEVICE", "").partition(":")[0] != name:
            return accelerates(max_memory)
        if max_memory is None:
            counted = range(torch.accelerator.device_count())
            own: dict[int | str, int] = {index: torch.accelerator.get_memory_info(index)[0] for index in counted}
            # Devices of the CPU plugin have the memory of the host, which is counted once.
            return own if _C.platform_info()["platform"] == "cpu" else {**own, **accelerates()}
        # As accelerate does, in the user's dictionary.
        for place, size in max_memory.items():
            if isinstance(size, str):
                max_memory[place] = module.convert_file_size_to_int(size)
        # accelerate warns of numbers of devices that it does not know.
        given = {place: max_memory[place] for place in sorted(each for each in max_memory if isinstance(each, int))}
        return {**given, **accelerates({place: size for place, size in max_memory.items() if place not in given})}

    module.get_max_memory = get_max_memory
