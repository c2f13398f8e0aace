"""Calls a function after the import of a module, without importing it: `import torch` must stay fast.

Python's import system asks `_WhenImported` for the module. `_WhenImported` passes the request to the finders after it,
and the loader that it returns calls the function after the module has run.
"""

from __future__ import annotations

import importlib.abc
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType


def call_when_imported(name: str, function: Callable[[ModuleType], None]) -> None:
    """Calls `function` with the module `name`, now if it is imported, or else after its import."""
    if (module := sys.modules.get(name)) is not None:
        function(module)
    else:
        sys.meta_path.insert(0, _WhenImported(name, function))


class _WhenImported(importlib.abc.MetaPathFinder):
    """Finds one module where Python does. It stays until the module has run: a library may ask for the spec only."""

    def __init__(self, name: str, function: Callable[[ModuleType], None]) -> None:
        self._name = name
        self._function = function

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._name or self not in sys.meta_path:
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in later)), None)
        if spec is not None and spec.loader is not None:
            spec.loader = _ThenCall(spec.loader, self)
        return spec

    def end(self, module: ModuleType) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
            self._function(module)


class _ThenCall(importlib.abc.Loader):
    """Loads a module with its own loader, then tells the finder."""

    def __init__(self, loader: importlib.abc.Loader, finder: _WhenImported) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.end(module)
