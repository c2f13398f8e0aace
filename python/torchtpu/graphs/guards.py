"""Guards that a trace adds to the shape environment of a graph."""

from __future__ import annotations

from typing import Any


class Guards:
    """What a graph's shape environment knows of its sizes. A trace may add that a size is a constant, which would be
    wrong for the programs of other sizes."""

    FIELDS = ("replacements", "var_to_range", "divisible", "axioms")

    def __init__(self, shape_env: Any) -> None:
        self._env = shape_env
        self._number = len(shape_env.guards)
        self._known = {name: dict(getattr(shape_env, name)) for name in self.FIELDS if self._is_dict(name)}

    def _is_dict(self, name: str) -> bool:
        return isinstance(getattr(self._env, name, None), dict)

    def forget_new(self) -> bool:
        """Forgets what was added since. Returns whether something was."""
        if len(self._env.guards) == self._number:
            return False
        del self._env.guards[self._number :]
        for name, known in self._known.items():
            current = getattr(self._env, name)
            current.clear()
            current.update(known)
        # Both are keys of what the environment has cached.
        self._env._update_version_counter()
        if hasattr(self._env, "_replacements_version_counter"):
            self._env._replacements_version_counter += 1
        return True
