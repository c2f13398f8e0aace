"""Memory use of the device.

The core counts the storages that have a value. The plugin owns the allocator and does not report on it, so
"reserved" bytes equal the allocated ones, and there are no segments and no splits.
"""

from __future__ import annotations

from torchtpu import _C
from torchtpu.tpu.devices import Device, get_device_index
from torchtpu.tpu.lazy import is_initialized
from torchtpu.tpu.memory_history import _dump_snapshot as _dump_snapshot
from torchtpu.tpu.memory_history import _record_memory_history as _record_memory_history
from torchtpu.tpu.memory_history import _snapshot as _snapshot
from torchtpu.tpu.memory_history import memory_snapshot as memory_snapshot

FIGURES = (
    "allocated",
    "peak_allocated",
    "total_allocated",
    "total_freed",
    "live",
    "peak_live",
    "total_live",
    "total_released",
    "out_of_memory",
    "free",
    "total",
)


def memory_allocated(device: Device = None) -> int:
    """Bytes of the live storages on a device."""
    return _stats(device)["allocated"]


def max_memory_allocated(device: Device = None) -> int:
    """The highest `memory_allocated` since the start, or since `reset_peak_memory_stats`."""
    return _stats(device)["peak_allocated"]


def memory_reserved(device: Device = None) -> int:
    """The same as `memory_allocated`: the plugin does not report other reserved memory."""
    return memory_allocated(device)


def max_memory_reserved(device: Device = None) -> int:
    """The same as `max_memory_allocated`."""
    return max_memory_allocated(device)


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes on a device."""
    stats = _C.memory_stats(get_device_index(device))
    return stats["free"], stats["total"]


def reset_peak_memory_stats(device: Device = None) -> None:
    """Resets the peak figures to the current values."""
    if is_initialized():
        _C.reset_peak_memory_stats(get_device_index(device))


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Resets to zero what was allocated and freed in total, and the count of failures."""
    if is_initialized():
        _C.reset_accumulated_memory_stats(get_device_index(device))


def empty_cache() -> None:
    """Frees memory that is kept for reuse."""
    if is_initialized():
        _C.empty_cache()


def memory_stats(device: Device = None) -> dict[str, int]:
    """All figures, under the flat keys of `torch.cuda.memory_stats`."""
    stats = _stats(device)
    in_bytes = {
        "current": stats["allocated"],
        "peak": stats["peak_allocated"],
        "allocated": stats["total_allocated"],
        "freed": stats["total_freed"],
    }
    in_storages = {
        "current": stats["live"],
        "peak": stats["peak_live"],
        "allocated": stats["total_live"],
        "freed": stats["total_released"],
    }
    flat: dict[str, int] = {}
    for family in ("active_bytes", "allocated_bytes", "requested_bytes", "reserved_bytes"):
        flat.update({f"{family}.all.{statistic}": value for statistic, value in in_bytes.items()})
    for family in ("active", "allocation"):
        flat.update({f"{family}.all.{statistic}": value for statistic, value in in_storages.items()})
    # Allocations are never retried after a cache flush: the allocator is the plugin's.
    flat["num_alloc_retries"] = 0
    flat["num_ooms"] = stats["out_of_memory"]
    return dict(sorted(flat.items()))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """The figures as a table to print. `abbreviated` omits the totals."""
    index = get_device_index(device)
    stats = _stats(index)
    columns = ["", "now", "peak"] + ([] if abbreviated else ["allocated in total", "freed in total"])
    sizes = ["memory", *(_size(stats[key]) for key in ("allocated", "peak_allocated"))]
    counts = ["storages", f"{stats['live']:,}", f"{stats['peak_live']:,}"]
    if not abbreviated:
        sizes += [_size(stats["total_allocated"]), _size(stats["total_freed"])]
        counts += [f"{stats['total_live']:,}", f"{stats['total_released']:,}"]
    rows = [columns, sizes, counts]
    widths = [max(len(row[column]) for row in rows) for column in range(len(columns))]
    lines = [_line(row, widths) for row in rows]
    rule = "-" * len(lines[0])
    free = f"free {_size(stats['free'])} of {_size(stats['total'])}, out of memory {stats['out_of_memory']} times"
    return "\n".join([f"tpu:{index}", rule, lines[0], rule, *lines[1:], rule, free])


def _line(cells: list[str], widths: list[int]) -> str:
    figures = [cell.rjust(width) for cell, width in zip(cells[1:], widths[1:], strict=True)]
    return "  ".join([cells[0].ljust(widths[0]), *figures])


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def _stats(device: Device) -> dict[str, int]:
    """The core's figures; zeros if the device was not used yet. Does not open the plugin."""
    return _C.memory_stats(get_device_index(device)) if is_initialized() else dict.fromkeys(FIGURES, 0)
