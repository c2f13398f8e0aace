"""The report as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torchtpu.preflight.remedies import remedy

if TYPE_CHECKING:
    from torchtpu.preflight.run import Report

_ROWS = 10


def size(count: float) -> str:
    """Bytes for people: "1.25 GiB"."""
    for unit, scale in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count:.0f} B"


def milliseconds(seconds: tuple[float, float] | list[float]) -> str:
    """A range of seconds in milliseconds: "12.1 to 24.2 ms"."""
    return f"{seconds[0] * 1e3:.3g} to {seconds[1] * 1e3:.3g} ms"


def rate(per_second: Sequence[float], unit: str) -> str:
    """What is trained on in a second: "12,300 to 24,700 tokens/s"."""
    low, high = (f"{each:,.0f}" if each >= 100 else f"{each:.3g}" for each in per_second)
    return f"{low} to {high} {unit}/s"


def batch(found: Mapping[str, Any]) -> str:
    """The largest batch that fits, in words."""
    now = f"this one has {found['now']}"
    if found["fits"] or found["does_not_fit"]:
        above = f"; {found['does_not_fit']} does not" if found["does_not_fit"] else ""
        return f"the largest batch found to fit: {found['fits'] or 'none'}{above} ({now})"
    if found["expected"] is None:
        return f"what grows with the batch is not known ({now})"
    low, high = found["expected"]
    size = f"{low} or more" if high is None else str(low) if low == high else f"{low} to {high}"
    return f"the largest batch that fits: {size} expected ({now}); --batch largest compiles to find it"


def text(report: Report) -> str:
    """The report for a terminal."""
    return "\n".join([*_verdict(report), *_memory(report), *_time(report), *_network(report), *_advice(report)])


def _verdict(report: Report) -> Iterator[str]:
    largest = report.largest
    axes = ", ".join(f"{name}={count}" for name, count in report.mesh.axes) if report.mesh else ""
    place = f"one device of {report.topology} ({axes})" if axes else report.topology
    yield f"preflight for {place}: {report.recording.steps} steps recorded"
    if report.recording.failure:
        yield f"  the script failed: {report.recording.failure}"
    for problem in dict.fromkeys(report.problems):
        yield f"  not judged: {problem}"
    if largest is None:
        return
    limit = size(report.chip.memory)
    share = largest.total_bytes / report.chip.memory
    if report.fits:
        yield f"  fits: a step takes {size(largest.total_bytes)} of {limit} ({share:.0%})"
    elif report.fits is None:
        yield f"  what was judged of a step takes {size(largest.total_bytes)} of {limit} ({share:.0%})"
    else:
        yield f"  DOES NOT FIT: a step takes {size(largest.total_bytes)}, and {limit} can be used"
    if report.largest_batch:
        yield f"  {batch(report.largest_batch)}"
    seconds = report.step_seconds
    if seconds:
        yield f"  a step takes {milliseconds(seconds)} on the chip; at most {report.mfu_bound or 0:.0%} of its peak"
    if report.throughput:
        yield f"  {rate(report.throughput, report.recording.taken[0])}, on each chip"
    if report.attributed:
        shares = report.attributed
        yield f"  on lines and names: {shares['bytes']:.1%} of the bytes, {shares['seconds']:.1%} of the time"


def _memory(report: Report) -> Iterator[str]:
    largest = report.largest
    if largest is None:
        return
    yield "memory:"
    for role, count in largest.bytes.items():
        if count:
            yield f"  {size(count):>12}  {role.replace('_', ' ')}"
    yield "largest owners:"
    for owner in largest.owners[:_ROWS]:
        where = f"  {owner.line}" if owner.line else ""
        yield f"  {size(owner.bytes):>12}  {owner.role.replace('_', ' '):16} {owner.name}{where}"
    for owner in largest.padding[:3]:
        yield f"  padding wastes {size(owner.bytes)} of {owner.name} at {owner.line}"
    if largest.rematerialized:
        yield f"  the compiler computes {largest.rematerialized} values twice to save memory"


def _time(report: Report) -> Iterator[str]:
    parts = report.parts
    total = sum(part.seconds[0] for part in parts)
    if not total:
        return
    yield "time by module:      share  at best ms  bound by"
    for part in parts[:_ROWS]:
        low = part.seconds[0]
        yield f"  {part.name[:48]:48} {low / total:6.1%} {low * 1e3:9.3f}  {part.bound}"
    if len(parts) > _ROWS:
        rest = sum(part.seconds[0] for part in parts[_ROWS:])
        yield f"  {f'{len(parts) - _ROWS} more':48} {rest / total:6.1%} {rest * 1e3:9.3f}"


def _network(report: Report) -> Iterator[str]:
    if report.traffic:
        yield "network, in a step:     sent by a rank        seconds   collectives"
    for each in report.traffic:
        yield f"  {each.axis:20} {size(each.bytes):>14} {each.seconds * 1e3:11.3f} ms {each.collectives:8.0f}"


def reasons(why: Sequence[str]) -> str:
    """The first reasons why a program is new, and how many there are beside."""
    more = [f"and {len(why) - 2} more"] if len(why) > 2 else []
    return "; ".join([*why[:2], *more])


def _advice(report: Report) -> Iterator[str]:
    if report.suggestions:
        yield "what would make a step faster, by compiling it:"
    for each in report.suggestions:
        yield f"  {each.gain:4.0%} less  {each.what}  {each.line}"
    if report.recording.recompiles:
        yield "new programs after the first step:"
    for line, why in report.recording.recompiles[:_ROWS]:
        yield f"  {line or 'at the end'}: {reasons(why)}"
        if remedy(why):
            yield f"    {remedy(why)}"
    if report.recording.reads:
        yield "lines that read values, which were invented here:"
    for line, reads in report.recording.reads:
        yield f"  {line} ({reads} times)" if reads > 1 else f"  {line} (once)"
    if report.what_if:
        yield "what if:      batch fits                       memory  step"
    for chip, batch, fits, memory, step, mfu, speed in what_if_rows(report):
        yield f"  {chip:12} {batch:>4} {fits:4} {memory:>28}  {step:22} {mfu:>6}  {speed}"
    for chip, largest in largest_batches(report):
        yield f"  the largest of these batches that fits {chip}: {largest or 'none'}"


def what_if_rows(report: Report) -> list[list[str]]:
    """For each other chip or batch: its topology, the batch, whether a step fits, the memory, a step's time, the part
    of the peak that it reaches at most, and what it trains on in a second."""
    return [
        [
            row["chip"],
            str(row["batch"] or ""),
            {True: "yes", False: "no", None: "?"}[row["fits"]],
            f"{size(row['bytes'] or 0)} of {size(row['limit_bytes'])}",
            milliseconds(row["step_seconds"]) if row["step_seconds"] else "not judged",
            f"{row['mfu_bound']:.0%}" if row["mfu_bound"] else "",
            rate(row["per_second"], report.recording.taken[0]) if row["per_second"] else "",
        ]
        for row in report.what_if
    ]


def largest_batches(report: Report) -> list[tuple[str, int]]:
    """For each chip the largest of the compared batches that fits; 0 if none does."""
    found: dict[str, int] = {}
    for row in report.what_if:
        if row["batch"]:
            found[row["chip"]] = max(found.get(row["chip"], 0), row["batch"] if row["fits"] else 0)
    return list(found.items())
