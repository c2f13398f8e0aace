"""Changes modules when they are imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any


class Changed(MetaPathFinder, Loader):
    """Imports the named modules as usual, and then calls their functions with them."""

    def __init__(self, changes: Mapping[str, Callable[[Any], None]]) -> None:
        self.changes = changes
        self.loaders: dict[str, Loader] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        found = PathFinder.find_spec(name, path) if name in self.changes else None
        if found is not None and found.loader is not None:
            self.loaders[name] = found.loader
            found.loader = self
        return found

    def create_module(self, spec: ModuleSpec) -> Any:
        return self.loaders[spec.name].create_module(spec)

    def exec_module(self, module: Any) -> None:
        self.loaders[module.__name__].exec_module(module)
        self.changes[module.__name__](module)


def when_imported(changes: Mapping[str, Callable[[Any], None]]) -> None:
    """Registers the functions of modules that are not imported yet."""
    assert not sys.modules.keys() & changes.keys()
    sys.meta_path.insert(0, Changed(changes))
