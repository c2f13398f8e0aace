"""Brings PyTorch's test folder into a cache. None of it is part of this repository."""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
import tempfile
import urllib.request
from pathlib import Path

# PyPI's source package has no tests. Debian's source package has the folder as PyTorch published it.
VERSION = "2.6.0"
ARCHIVE = "pool/main/p/pytorch/pytorch_2.6.0+dfsg.orig.tar.xz"
SHA256 = "099a9601bc40d67656e75735c44abedb0fbe92d08817852ab7472eebb7e6ddff"
MIRRORS = (
    "http://deb.debian.org/debian",
    # Keeps what Debian's mirrors have dropped.
    "https://snapshot.debian.org/archive/debian/20250701T000000Z",
)


def cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "torchtpu-judge" / f"pytorch-{VERSION}"


def pytorch_tests(given: Path | None) -> Path:
    """PyTorch's `test` folder: the given one, or that of the cache, which is filled first.

    Raises:
        OSError: the archive could not be downloaded, or is not the one that was expected.
    """
    if given is not None:
        if not (given / "test_torch.py").exists():
            raise OSError(f"{given} is not PyTorch's test folder: it has no test_torch.py")
        return given.resolve()
    folder = cache_folder()
    if not (folder / "test").exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as place:
            archive = Path(place) / "source.tar.xz"
            _download(archive)
            with tarfile.open(archive) as tar:
                tests = [each for each in tar if each.name.split("/")[1:2] == ["test"]]
                tar.extractall(place, members=tests, filter="tar")
            next(Path(place).glob("*/test")).rename(folder / "test")
    return folder / "test"


def _download(target: Path) -> None:
    problems = []
    for mirror in MIRRORS:
        try:
            with urllib.request.urlopen(f"{mirror}/{ARCHIVE}", timeout=60) as answer, target.open("wb") as file:
                shutil.copyfileobj(answer, file)
        except OSError as error:
            problems.append(f"{mirror}: {error}")
            continue
        found = hashlib.sha256(target.read_bytes()).hexdigest()
        if found == SHA256:
            return
        problems.append(f"{mirror}: the checksum is {found}, not {SHA256}")
    raise OSError("PyTorch's tests could not be downloaded: " + "; ".join(problems))
