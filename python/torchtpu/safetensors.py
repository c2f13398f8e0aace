"""`safetensors.safe_open(..., device="tpu")`.

safetensors knows devices by their names and refuses others. It also takes an index, which means the device of the
accelerator in use. So the function that stands for `safe_open` gives it the index of a tpu device. `load_file` and
`load_model` call it. `docs/upstream` has the change to safetensors that would end this file.

safetensors is not imported here: its function is replaced after the user's import of it.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import torch

MODULE = "safetensors"


def take_device(name: str) -> None:
    """Makes safetensors take devices of the type `name`, now or when it is imported."""
    if (module := sys.modules.get(MODULE)) is not None:
        _replace(module, name)
    else:
        sys.meta_path.insert(0, _Finder(name))


class _Finder(MetaPathFinder):
    """Finds safetensors where Python does. What it finds replaces `safe_open` after its module has run."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != MODULE:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_replace(module: ModuleType) -> None:
                run(module)
                _replace(module, self._name)

            spec.loader.exec_module = run_and_replace  # type: ignore[method-assign]
        return spec


def _replace(module: ModuleType, name: str) -> None:
    safetensors_open = getattr(module, "safe_open", None)
    if safetensors_open is None:
        return

    @functools.wraps(safetensors_open, updated=())
    def safe_open(filename: Any, framework: Any, device: Any = "cpu", **others: Any) -> Any:
        if isinstance(device, str) and device.partition(":")[0] == name:
            place = torch.device(device)
            device = torch.accelerator.current_device_index() if place.index is None else place.index
        return safetensors_open(filename, framework, device, **others)

    module.safe_open = safe_open  # type: ignore[attr-defined]
