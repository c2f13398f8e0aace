"""The pictures of the page, as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import log10, prod

from torchtpu.preflight.analysis import ROLES
from torchtpu.preflight.chips import Chip
from torchtpu.preflight.mesh import Mesh
from torchtpu.preflight.timing import Part

WIDTH = 900
# For each role its colour.
COLOURS = dict(
    zip(
        ROLES,
        ("#3366cc", "#dc7633", "#e3b505", "#8e6bb5", "#5b7c99", "#7f8c8d", "#2a9d6f", "#c0447a", "#b8bdc2"),
        strict=True,
    )
)
_HEIGHT = 200
# The roofline's scales: powers of ten of operations per byte and of operations per second.
_INTENSITIES, _SPEEDS = (-1.0, 4.0), (9.0, 15.5)
# Ranks that a row of a drawn mesh has at most.
_RANKS = 32


def svg(height: float, body: Sequence[str]) -> str:
    """A picture that is as wide as the page, and on a narrow screen wider."""
    return f'<div class=wide><svg viewBox="0 0 {WIDTH + 40} {height:.0f}" width="100%">{"".join(body)}</svg></div>'


def memory_over_step(history: Sequence[Mapping[str, int]], limit: int) -> str:
    """Bytes by role over the schedule of a program, stacked, and the limit as a red line."""
    top = max([limit, *(sum(moment.values()) for moment in history)])
    scale, step = _HEIGHT / top, WIDTH / max(1, len(history))
    floor = [0.0] * len(history)
    areas = []
    for role in ROLES:
        sizes = [max(0, moment.get(role, 0)) * scale for moment in history]
        if not any(sizes):
            continue
        ceiling = [low + size for low, size in zip(floor, sizes, strict=True)]
        # Each moment is as wide as the others: a step up and down.
        edge = [(x, y) for i, y in enumerate(ceiling) for x in (i * step, (i + 1) * step)]
        edge += [(x, y) for i, y in reversed(list(enumerate(floor))) for x in ((i + 1) * step, i * step)]
        points = " ".join(f"{x:.1f},{_HEIGHT - y:.1f}" for x, y in edge)
        label = escape(role.replace("_", " "))
        areas.append(f'<polygon points="{points}" fill="{COLOURS[role]}"><title>{label}</title></polygon>')
        floor = ceiling
    y = _HEIGHT - limit * scale
    areas.append(f'<line x1="0" x2="{WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#b3261e" stroke-width="2"/>')
    return svg(_HEIGHT, areas)


def roofline(parts: Sequence[Part], chip: Chip) -> str:
    """Modules by operations per byte and the speed that they reach at best, under the chip's limits."""

    def x(intensity: float) -> float:
        low, high = _INTENSITIES
        return (min(max(log10(intensity), low), high) - low) / (high - low) * WIDTH

    def y(speed: float) -> float:
        low, high = _SPEEDS
        return _HEIGHT * (1 - (min(max(log10(speed), low), high) - low) / (high - low))

    edge = chip.flops / chip.memory_bandwidth
    start, end = 10 ** _INTENSITIES[0], 10 ** _INTENSITIES[1]
    corners = [(start, start * chip.memory_bandwidth), (edge, chip.flops), (end, chip.flops)]
    line = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in corners)
    body = [
        f'<polyline points="{line}" fill="none" stroke="#b3261e" stroke-width="2"/>',
        f'<text x="{WIDTH - 4}" y="{_HEIGHT - 4}" text-anchor="end">operations per byte, 0.1 to 10,000</text>',
        '<text x="0" y="12">operations in a second, 1 GFLOP/s to 3,160 TFLOP/s</text>',
        f'<text x="{x(edge):.1f}" y="{y(chip.flops) - 6:.1f}">{chip.flops / 1e12:.0f} TFLOP/s</text>',
    ]
    total = sum(part.seconds[0] for part in parts) or 1.0
    named = sorted(parts, key=lambda part: -part.seconds[0])[:3]
    for part in parts:
        if part.flops and part.memory_bytes and part.seconds[0]:
            intensity, speed = part.flops / part.memory_bytes, part.flops / part.seconds[0]
            radius = 3 + 12 * (part.seconds[0] / total) ** 0.5
            body.append(
                f'<circle cx="{x(intensity):.1f}" cy="{y(speed):.1f}" r="{radius:.1f}" fill="{COLOURS["parameters"]}" '
                f'fill-opacity="0.5"><title>{escape(part.name)}: {speed / 1e12:.3g} TFLOP/s</title></circle>'
            )
            if part in named:
                side = ("end", -radius - 3) if x(intensity) > WIDTH / 2 else ("start", radius + 3)
                body.append(
                    f'<text x="{x(intensity) + side[1]:.1f}" y="{y(speed) + 4:.1f}" text-anchor="{side[0]}">'
                    f"{escape(part.name[-40:])}</text>"
                )
    return svg(_HEIGHT, body)


def groups(mesh: Mesh, axes: Sequence[str]) -> str:
    """The ranks of the mesh, once for each axis, with the group of rank 0 in colour."""
    body, top = [], 0.0
    for number, axis in enumerate(axes):
        colour = list(COLOURS.values())[number % len(COLOURS)]
        body.append(f'<text x="0" y="{top + 14:.0f}">{escape(axis)}</text>')
        members = set(mesh.group_of_first(axis))
        columns = min(_RANKS, mesh.axes[-1][1] if len(mesh.axes) > 1 else mesh.devices)
        count = min(mesh.devices, columns * 16)
        for rank in range(count):
            left, down = 120 + rank % columns * 16, top + rank // columns * 16
            fill = colour if rank in members else "#e6e8ea"
            body.append(
                f'<rect x="{left}" y="{down + 3:.0f}" width="13" height="13" fill="{fill}"><title>{rank}</title></rect>'
            )
        top += -(-count // columns) * 16 + 12
    return svg(top, body) if prod(size for _, size in mesh.axes) > 1 and axes else ""
