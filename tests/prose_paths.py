"""Prints each path in the documents that does not exist, and fails if there is one. `make lint` runs it.

A path is the target of a link, or a quoted word that begins with a folder of the repository
(`crates/aten/src/ops`) or ends like a source file (`unary.rs`, `ops/linalg/lu.rs`; the leading folders may be
missing).
"""

from __future__ import annotations

import fnmatch
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)")
QUOTED = re.compile(r"`([\w./*<>-]+)`")
SOURCES = (".rs", ".py", ".pyi", ".cpp", ".h", ".toml", ".md", ".sh")
# Created by make targets.
MADE = ("build/", "dist/", "target/", ".venv")


def tracked() -> list[str]:
    """The files, including untracked ones."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def paths(document: str, files: list[str]) -> Iterator[tuple[int, str, bool]]:
    """The line, the path, and whether it exists, for each path in a document."""
    folders = {file.split("/")[0] for file in files if "/" in file}
    for number, line in enumerate((ROOT / document).read_text().splitlines(), 1):
        for link in LINK.findall(line):
            if "://" not in link and not link.startswith("mailto:"):
                yield number, link, (ROOT / document).parent.joinpath(link).exists()
        for quoted in QUOTED.findall(line):
            # `<family>.rs` stands for any name.
            pattern = re.sub(r"<[^>]*>", "*", quoted)
            if quoted.startswith(MADE):
                continue
            if "/" in quoted and quoted.split("/")[0] in folders:
                yield number, quoted, any(True for _ in ROOT.glob(pattern.rstrip("/")))
            elif quoted.endswith(SOURCES) and not quoted.startswith("."):
                yield number, quoted, any(fnmatch.fnmatchcase(f"/{file}", f"*/{pattern}") for file in files)


def main() -> int:
    files = tracked()
    missing = 0
    for document in files:
        if document.endswith(".md") and (ROOT / document).exists():
            for number, path, exists in paths(document, files):
                if not exists:
                    print(f"{document}:{number}: {path} does not exist")
                    missing += 1
    return int(missing > 0)


if __name__ == "__main__":
    sys.exit(main())
