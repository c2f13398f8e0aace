"""Registers the device and the backend with Dynamo.

`import torch` must stay fast, and importing Dynamo takes seconds, so this waits until other code imports it.
Python's import system asks `_WhenImported` for the module. `_WhenImported` passes the request to the usual
finders, and calls a function after the import.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

DYNAMO = "torch._dynamo"
INDUCTOR = "torch._inductor.compile_fx"
FLEX_ATTENTION = "torch.nn.attention.flex_attention"


def register_with_dynamo() -> None:
    """Registers the backend and the device interface now, or when Dynamo is imported; the same for inductor and flex
    attention."""
    _when_imported(DYNAMO, _register)
    _when_imported(FLEX_ATTENTION, _admit_to_flex_attention)
    _when_imported(INDUCTOR, _register_with_inductor)


def _when_imported(name: str, function: Callable[[], None]) -> None:
    if name in sys.modules:
        function()
    else:
        sys.meta_path.insert(0, _WhenImported(name, function))


def _register_with_inductor() -> None:
    from torchtpu.compile.inductor import compile_tpu_graphs

    compile_tpu_graphs()


def _register() -> None:
    import torch
    from torch._dynamo import trace_rules
    from torch._dynamo.backends.registry import register_backend
    from torch._dynamo.device_interface import get_interface_for_device, register_interface_for_device

    from torchtpu.compile import artifacts, backend  # noqa: F401 (registers the artifacts)
    from torchtpu.compile.device_interface import TpuInterface
    from torchtpu.operators import references

    references.call_with_dynamo()
    get_interface_for_device("cpu")  # registers torch's own interfaces, with a placeholder for "tpu" ...
    register_interface_for_device("tpu", TpuInterface)  # ... which this one replaces
    for package in ("torchtpu.tpu", "torchtpu.graphs", "torchtpu.operators"):
        trace_rules.add(package)  # Dynamo must not trace it, like torch itself
    register_backend(backend.tpu, name="tpu")
    if hasattr(torch.compiler, "set_default_backend"):  # since torch 2.15
        backend.others = torch.compiler.get_default_backend()
        torch.compiler.set_default_backend("tpu")


def _admit_to_flex_attention() -> None:
    """Adds "tpu" to flex attention's list of devices, which is a constant of one function.

    `docs/upstream/pytorch_flex_attention_of_a_backend.patch` would make this unnecessary.
    """
    from torch.nn.attention import flex_attention

    refuse = getattr(flex_attention, "_validate_device", None)
    if refuse is None:
        return

    def validate(query: Tensor, key: Tensor, value: Tensor) -> None:
        if query.device.type != "tpu":
            refuse(query, key, value)

    flex_attention._validate_device = validate


class _WhenImported(importlib.abc.MetaPathFinder):
    """Calls a function once, after a module was imported."""

    def __init__(self, name: str, function: Callable[[], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenCall(spec.loader, self._function)
        return spec


class _ThenCall(importlib.abc.Loader):
    """Loads a module with its own loader, then calls a function."""

    def __init__(self, loader: importlib.abc.Loader, function: Callable[[], None]) -> None:
        self._loader = loader
        self._function = function

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._function()
