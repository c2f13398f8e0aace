"""Fails if files of a Rust crate import each other in a circle that is larger than the crate's limit below.

Such files can only be understood, tested and moved together. A `use` of an item, and a path that begins with `crate`,
`super` or `self`, count as imports. Test modules do not. `make lint` runs this.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import networkx

CRATES = Path(__file__).parents[2] / "crates"

# The files of the largest circle that a crate may have. 1 means no circle.
LIMITS = {
    "abi": 1,
    "aten": 1,
    "bindings": 1,
    "dry": 1,
    "engine": 2,
    "error": 1,
    "pjrt": 4,
    "stablehlo": 4,
    # One file lists the functions that C++ calls. Their files use its helpers.
    "torchtpu": 6,
}

Module = tuple[str, ...]


def module_of(file: Path, source: Path) -> Module:
    parts = file.relative_to(source).with_suffix("").parts
    return parts[:-1] if parts[-1] in ("mod", "lib") else parts


def items(tree: str, prefix: str = "") -> Iterator[str]:
    """The paths of a `use`: `a::{b, c::d}` gives `a::b` and `a::c::d`."""
    if "{" not in tree:
        yield prefix + tree.split(" as ")[0].strip()
        return
    head, body = tree.split("{", 1)
    depth, start = 0, 0
    body = body[: body.rindex("}")] + ","
    for position, letter in enumerate(body):
        depth += (letter == "{") - (letter == "}")
        if letter == "," and depth == 0:
            if body[start:position].strip():
                yield from items(body[start:position].strip(), prefix + head.strip())
            start = position + 1


def imports(text: str) -> Iterator[str]:
    text = re.sub(r"//.*", "", text)
    text = re.split(r"#\[cfg\(test\)\]\s*mod\s", text)[0]
    for tree in re.findall(r'^\s*(?:pub(?:\([^)]*\))?\s+)?use\s+([^;"]+);', text, re.MULTILINE):
        yield from items(" ".join(tree.split()))
    yield from re.findall(r"\b(?:crate|super|self)(?:::\w+)+", text)


def absolute(path: str, module: Module) -> Module:
    """The path from the crate's root; empty if it leads to another crate."""
    first, *rest = path.split("::")
    if first == "crate":
        return tuple(rest)
    if first == "self":
        return (*module, *rest)
    if first != "super":
        return ()
    while first == "super":
        module = module[:-1]
        first, *rest = rest or [""]
    return (*module, first, *rest)


def circles(crate: str) -> list[list[str]]:
    source = CRATES / crate / "src"
    files = {module_of(file, source): file for file in source.rglob("*.rs")}
    graph = networkx.DiGraph()
    for module, file in files.items():
        for path in imports(file.read_text()):
            target = absolute(path, module)
            while target and target not in files:
                target = target[:-1]
            if target and target != module:
                graph.add_edge(module, target)
    return [
        sorted("/".join(module) for module in circle)
        for circle in networkx.strongly_connected_components(graph)
        if len(circle) > LIMITS[crate]
    ]


def main() -> int:
    known = sorted(folder.parent.name for folder in CRATES.glob("*/src"))
    if known != sorted(LIMITS):
        print(f"tests/lint/import_circles.py has limits for {sorted(LIMITS)}, the crates are {known}")
        return 1
    found = [(crate, circle) for crate in known for circle in circles(crate)]
    for crate, circle in found:
        print(f"crates/{crate}/src: these files import each other in a circle, the limit is {LIMITS[crate]}: {circle}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
