"""Folders beside the cache of compiled programs, for what Python has computed and other processes need again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from torchtpu import _C


class Stored:
    """A folder of values by key, of at most so many bytes: those used least recently go first.

    There is no folder if the disk cache is off. Nothing is raised: what cannot be read or written is computed again.
    """

    def __init__(self, name: str, most_bytes: int) -> None:
        self._name = name
        self._most_bytes = most_bytes

    @property
    def folder(self) -> Path | None:
        """The folder; None if the disk cache is off."""
        try:
            return _C.cache_folder()[0] / self._name
        except RuntimeError:
            return None

    def read(self, key: str) -> bytes | None:
        """The value of a key. None unless it is complete, owned by the user, and writable by the user only."""
        file = self.file(key)
        if file is None:
            return None
        try:
            with file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                if status.st_uid != os.geteuid() or status.st_mode & 0o022:
                    return None
                checksum, _, value = opened.read().partition(b"\n")
        except OSError:
            return None
        if _checksum(value) != checksum:
            with contextlib.suppress(OSError):
                file.unlink()
            return None
        with contextlib.suppress(OSError):
            os.utime(file)
        return value

    def write(self, key: str, value: bytes) -> None:
        """Writes a value in one step. If that fails, the next process computes it again."""
        file = self.file(key)
        if file is None:
            return
        with contextlib.suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            number, name = tempfile.mkstemp(dir=file.parent)
            with open(number, "wb") as opened:
                opened.write(_checksum(value) + b"\n" + value)
            os.replace(name, file)
            self._bound()

    def clear(self) -> int:
        """Removes all values; returns how many there were."""
        count = 0
        for file in self._files():
            with contextlib.suppress(OSError):
                file.unlink()
                count += 1
        return count

    def file(self, key: str) -> Path | None:
        """Where the value of a key is; None if the disk cache is off."""
        folder = self.folder
        return None if folder is None else folder / f"{key}.value"

    def _files(self) -> Iterator[Path]:
        folder = self.folder
        if folder is not None and folder.is_dir():
            yield from folder.glob("*.value")

    def _bound(self) -> None:
        found = sorted(((each.stat(), each) for each in self._files()), key=lambda each: -each[0].st_mtime)
        total = 0
        for status, file in found:
            total += status.st_size
            if total > self._most_bytes:
                file.unlink(missing_ok=True)


def _checksum(value: bytes) -> bytes:
    return hashlib.blake2b(value, digest_size=16).hexdigest().encode()
