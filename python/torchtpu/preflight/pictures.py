"""The pictures of the page, as SVG."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping, Sequence
from html import escape
from math import log10, prod

from torchtpu.preflight.analysis import ROLES
from torchtpu.preflight.chips import Chip
from torchtpu.preflight.mesh import Mesh
from torchtpu.preflight.modules import BACKWARD
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
# The bounds of modules. Each has a colour, and a name in the legend.
BOUNDS = {
    "compute": ("#3366cc", "arithmetic"),
    "memory": ("#dc7633", "memory traffic"),
    "vector unit": ("#8e6bb5", "the vector unit"),
    "interconnect": ("#2a9d6f", "the network"),
}
_HEIGHT = 200
# The flame: the height of a row, the rows at most, and what a letter takes.
_ROW, _DEPTH, _LETTER = 22, 7, 7
# Lines of text keep so far from each other.
_LINE = 15
# The roofline's scales: powers of ten of operations per byte and of operations per second.
_INTENSITIES, _SPEEDS = (-1.0, 4.0), (9.0, 15.5)
# Ranks that a row of a drawn mesh has at most.
_RANKS = 32
# Modules on the roofline that have their names.
_NAMES = 5


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


@dataclasses.dataclass
class _Node:
    """A module of the flame, with those in it."""

    seconds: defaultdict[str, float] = dataclasses.field(default_factory=lambda: defaultdict(float))
    """At best, by what bounds them; of the modules in it, too."""
    inner: dict[str, _Node] = dataclasses.field(default_factory=dict)

    @property
    def total(self) -> float:
        return sum(self.seconds.values())


def flame(parts: Sequence[Part]) -> str:
    """Modules by time, forward and backward together: each as wide as its part, below the module that has it."""
    root = _Node()
    for part in parts:
        node = root
        node.seconds[part.bound] += part.seconds[0]
        for name in part.name.removesuffix(BACKWARD).split("."):
            node = node.inner.setdefault(name, _Node())
            node.seconds[part.bound] += part.seconds[0]
    body: list[str] = []
    rows = _draw(body, root, "a step", 0.0, 0, root.total or 1.0)
    return svg(rows * _ROW, body)


def _draw(body: list[str], node: _Node, path: str, left: float, depth: int, whole: float) -> int:
    """Draws a module and those in it. Returns the rows that are used then."""
    width = node.total / whole * WIDTH
    if width < 1 or depth == _DEPTH:
        return depth
    bound = max(node.seconds, key=node.seconds.__getitem__)
    colour, why = BOUNDS[bound]
    name = path.rpartition(".")[2]
    title = f"{path}: {node.total * 1e3:.3g} ms, {node.total / whole:.1%}, most of it bound by {why}"
    body.append(
        f'<rect x="{left:.1f}" y="{depth * _ROW}" width="{max(0.5, width - 0.5):.1f}" height="{_ROW - 1}" '
        f'fill="{colour}" fill-opacity="0.75"><title>{escape(title)}</title></rect>'
    )
    letters = int((width - 6) / _LETTER)
    if letters >= min(3, len(name)):
        text = name if len(name) <= letters else name[: letters - 1] + "…"
        body.append(
            f'<text x="{left + 3:.1f}" y="{depth * _ROW + 15}" fill="#fff" pointer-events="none">{escape(text)}</text>'
        )
    rows = depth + 1
    is_list = all(inner.isdecimal() for inner in node.inner)
    for inner, child in sorted(node.inner.items(), key=lambda each: int(each[0]) if is_list else -each[1].total):
        rows = max(rows, _draw(body, child, f"{path}.{inner}" if depth else inner, left, depth + 1, whole))
        left += child.total / whole * WIDTH
    return rows


def _apart(heights: Sequence[float]) -> list[float]:
    """The heights of texts, moved down where they would lie over each other."""
    moved = dict[int, float]()
    last = 0.0
    for index in sorted(range(len(heights)), key=heights.__getitem__):
        last = moved[index] = max(heights[index], last + _LINE)
    excess = max(0.0, last - (_HEIGHT - _LINE))
    return [moved[index] - excess for index in range(len(heights))]


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
    shown = [part for part in parts if part.flops and part.memory_bytes and part.seconds[0]]
    shown.sort(key=lambda part: -part.seconds[0])
    places = [(x(part.flops / part.memory_bytes), y(part.flops / part.seconds[0])) for part in shown]
    for part, (across, down) in zip(shown, places, strict=True):
        radius = 3 + 12 * (part.seconds[0] / total) ** 0.5
        speed = part.flops / part.seconds[0] / 1e12
        body.append(
            f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{radius:.1f}" fill="{COLOURS["parameters"]}" '
            f'fill-opacity="0.5"><title>{escape(part.name)}: {speed:.3g} TFLOP/s</title></circle>'
        )
    # The names stand in a column where no circle is: below the line, each with a line to its circle.
    left, named = WIDTH * 0.6, places[:_NAMES]
    heights = _apart([max(down, _HEIGHT / 2 - 2 * _LINE) for _, down in named])
    for part, (across, down), height in zip(shown, named, heights, strict=False):
        body.append(
            f'<line x1="{across:.1f}" y1="{down:.1f}" x2="{left:.1f}" y2="{height:.1f}" stroke="#999"/>'
            f'<text x="{left + 4:.1f}" y="{height + 4:.1f}">{escape(part.name[-48:])}</text>'
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
