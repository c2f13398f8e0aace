"""Counters of what was compiled and what was run."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

from torchtpu import _C

_densified: Counter[str] = Counter()


def cache_stats() -> dict[str, Any]:
    """Where programs came from: "requests" is the number requested, "hits" were found in this process, "disk_hits"
    loaded from the cache folder, and "compiles" compiled. "waits" counts waits for other processes that compiled
    the same program. "improved" counts programs that were compiled again with full effort, because they were used
    much, and were compiled quickly at first.

    "load_seconds", "compile_seconds" and "wait_seconds" are the times taken. "evictions" counts programs and
    lowered calls evicted from memory, "disk_evictions" programs evicted from the folder when this process wrote
    others.
    """
    return dict(_C.cache_stats())


def op_stats() -> dict[str, Any]:
    """Counts of operator calls, and of those without a row.

    Keys: "operators", a count; "decomposed" and "fallen_back", counts by operator name; "padded" and "unpadded",
    the numbers of tensors that the host padded for compiled graphs with bounded sizes, or unpadded; "densified",
    counts by name of operators on sparse tensors that were computed with dense tensors; "routed" and "not_routed",
    counts of operators that a library's kernel can compute on a TPU: those that it computed, and those that it did
    not, with the reason.
    """
    routing = sys.modules.get("torchtpu.kernels.routing")
    routed, not_routed = ({}, {}) if routing is None else (dict(routing.routed), dict(routing.not_routed))
    return {**_C.op_stats(), "densified": dict(_densified), "routed": routed, "not_routed": not_routed}


def count_densified(operator: str) -> None:
    """Counts one call of an operator that converts a sparse tensor to a dense one to compute with it."""
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
