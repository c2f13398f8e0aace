"""Compiled programs among the artifacts of `torch.compiler.save_cache_artifacts` and `load_cache_artifacts`."""

from __future__ import annotations

import itertools
import logging
import os
import tempfile
from pathlib import Path
from typing import Any

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from torchtpu import _C

log = logging.getLogger(__name__)

_numbers = itertools.count()
# Recorded but not saved. When it is saved, it gets all programs used until then.
_open: list[ProgramsArtifact] = []


@CacheArtifactFactory.register
class ProgramsArtifact(CacheArtifact):
    """The programs that a process has used, as a bundle of `python -m torchtpu cache export`."""

    @staticmethod
    def type() -> str:
        return "tpu_programs"

    @property
    def content(self) -> bytes:
        """The bundle. A recorded artifact is made when it is saved, which reads this."""
        if self in _open:
            _open.remove(self)
            object.__setattr__(self, "_content", _bundle())
        return self._content

    @content.setter
    def content(self, value: bytes) -> None:
        object.__setattr__(self, "_content", value)

    _content: bytes

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramsArtifact) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def populate_cache(self) -> None:
        """Adds the programs to the folder of compiled programs."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "programs")
            path.write_bytes(self.content)
            try:
                _C.cache_import(path)
            except RuntimeError as error:
                log.warning("compiled programs are not loaded: %s", error)


def record_programs() -> None:
    """Records that the next `save_cache_artifacts` contains the programs that this process uses."""
    if not _open:
        key = f"{os.getpid()}-{next(_numbers)}"
        CacheArtifactManager.record_artifact(ProgramsArtifact.type(), key, b"")
        _open.extend(each for each in _recorded() if each.key == key)


def _recorded() -> list[Any]:
    return CacheArtifactManager._new_cache_artifacts[ProgramsArtifact.type()]


def _bundle() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "programs")
        try:
            _C.cache_export_used(path)
        except RuntimeError as error:
            log.warning("compiled programs are not saved: %s", error)
            return b""
        return path.read_bytes()
