"""What runs the operators of PyTorch's dispatcher that have a kernel for the CPU or for CUDA.

Operators that PyTorch composes of others need nothing. Each of the rest has a row, a kernel or a decomposition, or
is listed in without_kernel.toml with a reason. `make docs` writes the reasons to docs/operators.md.
`python -m tests.conformance.dispatcher` lists the operators with what runs them.
"""

from __future__ import annotations

import argparse
import functools
import os
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from torch._C import _dispatch_has_kernel_for_dispatch_key
from torch._ops import OpOverload
from torchtpu import _C
from torchtpu.graphs.names import has_row, name_of
from torchtpu.graphs.tracing import IDENTITIES, decompositions, functional_variant

from tests.conformance.exceptions import listed

WITHOUT_KERNEL = Path(__file__).with_name("without_kernel.toml")
COMPOSITES = ("CompositeImplicitAutograd", "CompositeExplicitAutograd")
ROW, KERNEL, DECOMPOSITION = "a row", "a kernel", "a decomposition"


def operators() -> Iterator[str]:
    """The names of operators that PyTorch has a kernel for and does not compose."""
    for name in _known_at_first():
        has_kernel = any(_dispatch_has_kernel_for_dispatch_key(name, key) for key in ("CPU", "CUDA"))
        if has_kernel and not any(_dispatch_has_kernel_for_dispatch_key(name, key) for key in COMPOSITES):
            yield name


def runs_it(name: str) -> str | None:
    """What runs an operator on the device; None if nothing does."""
    rows = _rows()
    operator = _overload(name)
    forms = [operator, functional_variant(operator)]
    known = [form for form in forms if form is not None]
    if any(has_row(form, rows) or name_of(form) in IDENTITIES for form in known):
        return ROW
    if _dispatch_has_kernel_for_dispatch_key(name, "PrivateUse1"):
        return KERNEL
    is_composed = any(_dispatch_has_kernel_for_dispatch_key(form.name(), key) for form in known for key in COMPOSITES)
    return DECOMPOSITION if is_composed or any(form in decompositions(rows) for form in known) else None


def forgotten() -> list[str]:
    """Operators that nothing runs and that are not listed with a reason."""
    return [name for name in _without_kernel() if reason(name) is None]


def reason(name: str) -> str | None:
    return next((why for pattern, why in listed(WITHOUT_KERNEL) if fnmatchcase(name, pattern)), None)


def unused() -> list[str]:
    """The patterns of the list that match no operator."""
    names = _without_kernel()
    return [pattern for pattern, _ in listed(WITHOUT_KERNEL) if not any(fnmatchcase(name, pattern) for name in names)]


def section() -> str:
    """The section about them in docs/operators.md."""
    by_reason: dict[str, list[str]] = {}
    for name in _without_kernel():
        by_reason.setdefault(reason(name) or "", []).append(f"`{name}`")
    lines = [f"| {why} | {', '.join(names)} |" for why, names in by_reason.items()]
    head = """
## What nothing runs

Of the operators that PyTorch's dispatcher has a kernel of its own for, on the CPU or on CUDA, all but these have a row,
a kernel or a decomposition. Calls of them are refused.

| reason | operators |
|---|---|
"""
    return head + "\n".join(lines) + "\n"


@functools.cache
def _known_at_first() -> list[str]:
    """The operators of a process that has only imported torch. Many of its modules define more when they are
    imported."""
    script = "import torch; print(*torch._C._dispatch_get_all_op_names())"
    environment = {**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    names = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    return sorted(names.stdout.split())


@functools.cache
def _rows() -> frozenset[str]:
    return frozenset(_C.table())


@functools.cache
def _without_kernel() -> list[str]:
    return [name for name in operators() if runs_it(name) is None]


def _overload(name: str) -> OpOverload:
    namespace, _, rest = name.partition("::")
    base, _, overload = rest.partition(".")
    found = getattr(getattr(getattr(torch.ops, namespace), base), overload or "default")
    assert isinstance(found, OpOverload)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.conformance.dispatcher",
        description="List the operators that PyTorch has a kernel for and does not compose of others, each after what "
        "runs it on the device: row, kernel, decomposition, or none with the reason.",
    )
    parser.add_argument("pattern", nargs="?", default="*", help="names to list, such as 'aten::*norm*' (default: all)")
    parser.add_argument("--without-a-row", action="store_true", help="leave out those with a row or a kernel")
    options = parser.parse_args()
    for name in operators():
        if not fnmatchcase(name, options.pattern):
            continue
        found = runs_it(name)
        if options.without_a_row and found in (ROW, KERNEL):
            continue
        kind = (found or "none").removeprefix("a ")
        print(f"{kind:13} {name}" + (f"  ({reason(name)})" if found is None else ""))


if __name__ == "__main__":
    main()
