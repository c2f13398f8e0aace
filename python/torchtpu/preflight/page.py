"""The report as one page of HTML."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from torchtpu.preflight import pictures
from torchtpu.preflight.pictures import BOUNDS, COLOURS, WIDTH
from torchtpu.preflight.remedies import remedy
from torchtpu.preflight.report import batch, milliseconds, rate, reasons, size, what_if_rows

if TYPE_CHECKING:
    from torchtpu.preflight.run import Report

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; }
td, th { padding: .2rem .6rem; text-align: left; vertical-align: top; overflow-wrap: anywhere; min-width: 6rem; }
tr:nth-child(even) { background: #f5f6f7; } .number { text-align: right; white-space: nowrap; }
.good { color: #1b7f4d; } .bad { color: #b3261e; } .line { color: #666; font-size: .85em; }
svg text { font: 12px system-ui, sans-serif; }
/* On a narrow screen, tables and pictures scroll sideways: their text stays as large as it is. */
.wide { overflow-x: auto; } .wide svg { display: block; min-width: 50rem; } .wide table { min-width: 34rem; }
"""


def page(report: Report) -> str:
    """The page. It loads nothing."""
    body = [_head(report), _memory(report), _time(report), _lists(report)]
    return (
        "<!doctype html><html lang=en><meta charset=utf-8>"
        '<meta name=viewport content="width=device-width, initial-scale=1">'
        f"<title>Preflight for {escape(report.topology)}</title>"
        f"<style>{_STYLE}</style><body>{''.join(body)}</body></html>\n"
    )


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    cells = (
        "".join(f"<td{' class=number' if i in numbers else ''}>{escape(cell)}</td>" for i, cell in enumerate(row))
        for row in rows
    )
    return f"<div class=wide><table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table></div>"


def _head(report: Report) -> str:
    largest, seconds = report.largest, report.step_seconds
    parts = [f"<h1>Preflight for {escape(report.topology)}</h1>"]
    if report.recording.failure:
        parts.append(f"<p class=bad>The script failed: {escape(report.recording.failure)}</p>")
    parts += [f"<p class=bad>Not judged: {escape(problem)}</p>" for problem in dict.fromkeys(report.problems)]
    if largest is not None:
        verdict = {True: "good>it fits", False: "bad>it does not fit", None: "bad>not all of it was judged"}[
            report.fits
        ]
        parts.append(
            f"<p>A step takes <b>{size(largest.total_bytes)}</b> of {size(report.chip.memory)}: "
            f"<b class={verdict}</b>.</p>"
        )
    if report.largest_batch:
        said = batch(report.largest_batch)
        parts.append(f"<p>{escape(said[0].upper() + said[1:])}.</p>")
    if seconds:
        parts.append(
            f"<p>A step takes <b>{milliseconds(seconds)}</b> on the chip, without the host, and reaches at most "
            f"{report.mfu_bound or 0:.0%} of the chip's peak.</p>"
        )
    if report.throughput:
        parts.append(f"<p>{rate(report.throughput, report.recording.taken[0])} on each chip.</p>")
    return "".join(parts)


def _memory(report: Report) -> str:
    largest = report.largest
    if largest is None:
        return ""
    scale = WIDTH / max(report.chip.memory, largest.total_bytes)
    left, bars, legend = 0.0, [], []
    for role, count in largest.bytes.items():
        if count <= 0:
            continue
        colour, label = COLOURS[role], role.replace("_", " ")
        bars.append(
            f'<rect x="{left:.1f}" y="8" width="{count * scale:.1f}" height="34" fill="{colour}">'
            f"<title>{label}: {size(count)}</title></rect>"
        )
        legend.append(f'<span style="color:{colour}">■</span> {label} {size(count)}')
        left += count * scale
    limit = report.chip.memory * scale
    bars.append(f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="0" y2="50" stroke="#b3261e" stroke-width="2"/>')
    drawing = pictures.svg(50, bars)
    rows = [[size(each.bytes), each.role.replace("_", " "), each.name, each.line] for each in largest.owners[:20]]
    over = pictures.memory_over_step(largest.history, report.chip.memory) if largest.history else ""
    if over:
        over = f"<h3>Over the program that takes the most, from its first instruction to its last</h3>{over}"
    return (
        f"<h2>Memory</h2>{drawing}<p>{' &nbsp; '.join(legend)}. The red line is what programs can use.</p>{over}"
        + "<h2>Largest owners</h2>"
        + _table(["bytes", "role", "owner", "line"], rows, [0])
    )


def _time(report: Report) -> str:
    parts = report.parts
    total = sum(part.seconds[0] for part in parts)
    if not total:
        return ""
    shown = parts[:24]
    bars = []
    for index, part in enumerate(shown):
        width = part.seconds[0] / shown[0].seconds[0] * (WIDTH - 420)
        colour, _ = BOUNDS[part.bound]
        top = index * 20
        bars.append(
            f'<text x="395" y="{top + 14}" text-anchor="end">{escape(part.name[-56:])}'
            f"<title>{escape(part.name)}</title></text>"
            f'<rect x="405" y="{top + 3}" width="{width:.1f}" height="14" fill="{colour}"/>'
            f'<text x="{410 + width:.1f}" y="{top + 14}">{part.seconds[0] / total:.1%}</text>'
        )
    drawing = pictures.svg(20 * len(shown), bars)
    bounds = {part.bound for part in parts}
    legend = " &nbsp; ".join(
        f'<span style="color:{colour}">■</span> bound by {why}'
        for bound, (colour, why) in BOUNDS.items()
        if bound in bounds
    )
    roofline = pictures.roofline(parts, report.chip)
    return (
        f"<h2>Time by module, at best</h2>{pictures.flame(parts)}<p>{legend}</p>"
        f"<h3>The most of it, forward and backward apart</h3>{drawing}<h3>Roofline</h3>{roofline}"
        "<p>A circle is a module, by its part of the time; those with the most have their names. The red line is the "
        "most that the chip computes.</p>"
    )


def _lists(report: Report) -> str:
    parts = []
    if report.traffic:
        rows = [
            [
                each.axis,
                size(each.bytes),
                f"{each.seconds * 1e3:.3g} ms",
                milliseconds(exposed["exposed_seconds"]),
                f"{each.collectives:.0f}",
                each.lines[0],
            ]
            for each, exposed in zip(report.traffic, report.communication, strict=True)
        ]
        drawing = pictures.groups(report.mesh, [each.axis for each in report.traffic]) if report.mesh else ""
        parts.append(
            "<h2>Network, in a step</h2>"
            + _table(["axes", "sent by a rank", "time", "exposed", "collectives", "line"], rows)
            + f"<p>The ranks that rank 0 sends to along each axis:</p>{drawing}"
        )
    if report.suggestions:
        rows = [[f"{each.gain:.0%}", each.what, each.line] for each in report.suggestions]
        parts.append("<h2>What would make a step faster</h2>" + _table(["saves", "change", "line"], rows, [0]))
    if report.what_if:
        rows = what_if_rows(report)
        parts.append(
            "<h2>What if</h2>" + _table(["chip", "batch", "fits", "memory", "step", "of the peak", "speed"], rows)
        )
    if report.recording.recompiles:
        rows = [[line or "at the end", reasons(why), remedy(why)] for line, why in report.recording.recompiles]
        parts.append("<h2>New programs after the first step</h2>" + _table(["line", "why", "remedy"], rows))
    if report.recording.reads:
        rows = [[line, str(reads)] for line, reads in report.recording.reads]
        parts.append("<h2>Lines that read values, which were invented here</h2>" + _table(["line", "reads"], rows))
    return "".join(parts)
