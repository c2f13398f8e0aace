"""Counters of what was compiled and what was run."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from torchtpu import _C

_densified: Counter[str] = Counter()


def cache_stats() -> dict[str, Any]:
    """Where programs came from: "requests" were asked for, "hits" found in this process, "disk_hits" loaded from
    the cache folder, and "compiles" compiled, after "waits" for other processes that were compiling the same.
    "improved" counts programs that were compiled once more, with full effort, because they were used much.

    "load_seconds", "compile_seconds" and "wait_seconds" are what that took. "evictions" counts what had to leave
    memory, "disk_evictions" what this process's writing made leave the folder.
    """
    return dict(_C.cache_stats())


def op_stats() -> dict[str, Any]:
    """Operators run, and those that had no row of their own.

    Keys: "operators", a count; "decomposed" and "fallen_back", counts by operator name; "padded" and "unpadded", how
    many tensors the host brought into and out of the form that compiled graphs with bounded sizes take; "densified",
    counts by name of the operators on sparse tensors that were computed with dense ones; "routed" and "not_routed",
    counts of operators that a library's kernel computes on a TPU, the latter with the reason why it did not.
    """
    routing = sys.modules.get("torchtpu.kernels.routing")
    routed, not_routed = ({}, {}) if routing is None else (dict(routing.routed), dict(routing.not_routed))
    return {**_C.op_stats(), "densified": dict(_densified), "routed": routed, "not_routed": not_routed}


def count_densified(operator: str) -> None:
    """Counts one call of an operator that makes a sparse tensor dense to compute with it."""
    _densified[operator] += 1


def reset_cache_stats() -> None:
    """Sets the counters of `cache_stats` to zero."""
    _C.reset_cache_stats()


def reset_op_stats() -> None:
    """Sets the counters of `op_stats` to zero."""
    _C.reset_op_stats()
    _densified.clear()
    if (routing := sys.modules.get("torchtpu.kernels.routing")) is not None:
        routing.routed.clear()
        routing.not_routed.clear()
