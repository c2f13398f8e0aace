"""What helps against a program that is new after the first step."""

from __future__ import annotations

import re
from collections.abc import Sequence

_CHANGE = re.compile(r"argument \d+ changed from ([\w.+-]+)(\[[^\]]*\])? to ([\w.+-]+)(\[[^\]]*\])?")


def remedy(why: Sequence[str]) -> str:
    """A remedy for the reasons of a compile, as `torch.tpu.explain` words them; empty if there is nothing to do."""
    for reason in why:
        found = _CHANGE.search(reason)
        if not found:
            continue
        old, old_sizes, new, new_sizes = found.groups()
        if old_sizes is None or new_sizes is None:
            return "a number changes: give it as a tensor on the device"
        if old != new:
            return f"the dtype changes from {old} to {new}: convert the tensor before the loop"
        if old_sizes.count(",") != new_sizes.count(","):
            return "the number of dimensions changes: give the tensor one form"
        return (
            "a size changes: pad it to few sizes, or say so with torch.tpu.mark_dynamic(x, dim, max=...), under "
            "torch.compile with torch._dynamo.mark_dynamic"
        )
    if any("its first call" in reason for reason in why):
        return "operators run for the first time: nothing to do if that is so only once"
    return ""
