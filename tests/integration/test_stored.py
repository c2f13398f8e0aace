"""Folders of values beside the disk cache."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from torchtpu.stored import Stored


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    monkeypatch.setenv("TORCHTPU_CACHE_DIR", str(tmp_path / "cache"))
    return Stored(".values", 1000)


def test_values_are_read_again(stored: Stored) -> None:
    assert stored.read("a") is None
    stored.write("a", b"words\nand lines")
    stored.write("empty", b"")
    assert (stored.read("a"), stored.read("empty")) == (b"words\nand lines", b"")
    assert stored.clear() == 2
    assert stored.read("a") is None


def test_damaged_files_are_removed(stored: Stored) -> None:
    stored.write("a", b"words")
    file = stored.file("a")
    assert file is not None
    file.chmod(0o622)
    assert stored.read("a") is None  # other users may write to it
    file.chmod(0o600)
    file.write_bytes(file.read_bytes()[:-1])
    assert stored.read("a") is None
    assert not file.exists()


def test_what_was_used_least_recently_goes_first(stored: Stored) -> None:
    for number, key in enumerate("abc"):
        stored.write(key, bytes(300))
        file = stored.file(key)
        assert file is not None
        os.utime(file, (number, number))
    assert stored.read("a") == bytes(300)
    stored.write("d", bytes(300))
    assert [key for key in "abcd" if stored.read(key) is None] == ["b", "c"][:1]


def test_without_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHTPU_CACHE", "0")
    stored = Stored(".values", 1000)
    stored.write("a", b"words")
    assert (stored.folder, stored.read("a"), stored.clear()) == (None, None, 0)
