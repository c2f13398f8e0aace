"""What helps against a program that is new after the first step."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CHANGE = re.compile(r"argument \d+ changed from ([\w.+-]+)(\[[^\]]*\])? to ([\w.+-]+)(\[[^\]]*\])?")


def remedy(why: Sequence[str]) -> str:
    """A remedy for the reasons of a compile, as `torch.tpu.explain` words them; empty if there is nothing to do."""
    # The calls of a line are then others than before, so that their sizes cannot be compared.
    if any("its first call" in reason for reason in why):
        return "operators run for the first time: nothing to do if that is so only once"
    for reason in why:
        found = _CHANGE.search(reason)
        if not found:
            continue
        old, old_sizes, new, new_sizes = found.groups()
        if old_sizes is None or new_sizes is None:
            return "a number changes: give it as a tensor on the device"
        if old != new:
            return f"the dtype changes from {old} to {new}: convert the tensor before the loop"
        before, after = ([int(size) for size in re.findall(r"\d+", sizes)] for sizes in (old_sizes, new_sizes))
        if len(before) != len(after):
            return "the number of dimensions changes: give the tensor one form"
        return _of_sizes(before, after)
    return ""


def _of_sizes(old: Sequence[int], new: Sequence[int]) -> str:
    changed = [(dim, *sizes) for dim, sizes in enumerate(zip(old, new, strict=True)) if sizes[0] != sizes[1]]
    if not changed:
        return "the strides change: give the tensor one layout"
    dim, before, after = changed[0]
    return (
        f"dimension {dim} changes from {before} to {after}: pad it to few sizes, or say so of the tensor x that it "
        f"comes from, where it is dimension d: torch.tpu.mark_dynamic(x, d, max={max(before, after)}), under "
        "torch.compile torch._dynamo.mark_dynamic(x, d)"
    )
