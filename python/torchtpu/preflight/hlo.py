"""Reads what XLA's compiler writes down: scheduled HLO, the assignment of buffers, and live ranges."""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Iterator

# How far from an instruction without a call one with a call is looked for.
_REACH = 6
_SIZES = {"pred": 1, "s4": 1, "u4": 1, "bf16": 2, "c64": 8, "c128": 16, "token": 0, "opaque": 0}
# Instructions that read parts of their first operand, and those whose result is their operand in another form.
_TAKING = ("slice", "dynamic-slice", "gather")
_SAME = ("bitcast", "reshape")
_SHAPE = re.compile(r"([a-z]+[0-9]*(?:e[0-9]m[0-9][a-z]*)?)\[([0-9,]*)\](?:\{([^}]*)\})?")
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%(\S+) = (\(.*?\)|\S+) ([a-z][a-z0-9\-]*)\((.*)$")
_CALL = re.compile(r'op_name="(?:[^"]*/)?call\.(\d+)')
_COMPUTATION = re.compile(r"^(ENTRY )?%(\S+) \(")
_VALUE = re.compile(r"^\s+value: <\d+ (\S+?)(?:\{[\d,]*\})? @\d+> \(size=(\d+),offset=(\d+)\)")


@dataclasses.dataclass
class Shape:
    """An array: bytes as it is laid out, bytes without padding, and whether it lies in HBM."""

    padded: int
    dense: int
    in_memory: bool
    dims: tuple[int, ...]


@dataclasses.dataclass
class Instruction:
    """An instruction of a computation."""

    name: str
    opcode: str
    shapes: list[Shape]
    operands: list[str]
    call: int | None
    """The number of the call in the program that it comes of."""
    called: list[str]
    """The computations that it calls."""
    cycles: int
    """The compiler's estimate; 0 where it has none."""
    parameter: int | None = None
    """The number of the parameter of its computation that it is."""


@dataclasses.dataclass
class Module:
    """A scheduled module."""

    computations: dict[str, list[Instruction]]
    entry: str

    def call_of(self, name: str) -> int | None:
        """The call that an instruction of the entry computation serves: its own, or the one of the nearest instruction
        that takes it, or gives to it. The compiler adds copies and slices that come of no call."""
        for neighbours in (self._users, self._operands):
            seen, frontier = {name}, [name]
            for _ in range(_REACH):
                calls = [call for each in frontier for call in self._calls.get(each, ())]
                if calls:
                    return max(calls)
                frontier = [near for each in frontier for near in neighbours.get(each, []) if near not in seen]
                seen.update(frontier)
        return None

    def traffic(self, instruction: Instruction) -> int:
        """The bytes of HBM that an instruction of the entry computation reads and writes.

        Of an array that it only takes parts of, or writes a part of in place, the parts count.
        """
        operands = [self._shapes.get(name, []) for name in instruction.operands]
        read = sum(
            self._read(instruction, place, sum(shape.padded for shape in shapes if shape.in_memory))
            for place, shapes in enumerate(operands)
        )
        results = instruction.shapes
        if instruction.opcode.endswith("-start"):
            # Its results begin with its operands.
            results = results[len(operands) :]
        written = sum(shape.padded for shape in results if shape.in_memory)
        body = self.computations.get(instruction.called[0], []) if _is_inlined(instruction) else [instruction]
        return read + min(written, self._written(body, body[-1])) if body and written else read + written

    def _read(self, instruction: Instruction, place: int, size: int) -> int:
        """How much of an operand of this size an instruction reads."""
        if not size:
            return 0
        if _is_inlined(instruction):
            body = self.computations.get(instruction.called[0], [])
            name = next((each.name for each in body if each.parameter == place), "")
            return min(size, self._read_inside(body, name, size))
        if place == 0 and instruction.opcode in _TAKING:
            return min(size, sum(shape.padded for shape in instruction.shapes))
        if place == 0 and instruction.opcode == "dynamic-update-slice":
            return 0
        return size

    def _read_inside(self, body: list[Instruction], name: str, size: int) -> int:
        """How much of a value of this size the instructions of a body read."""
        users = [(user, place) for user in body for place, operand in enumerate(user.operands) if operand == name]
        return sum(
            self._read_inside(body, user.name, size) if user.opcode in _SAME else self._read(user, place, size)
            for user, place in users
        )

    def _written(self, body: list[Instruction], instruction: Instruction) -> int:
        """How much of its results an instruction of a body writes at most."""
        defined = {each.name: each for each in body}
        if instruction.opcode == "tuple":
            return sum(self._written(body, defined[name]) for name in instruction.operands if name in defined)
        if instruction.opcode in _SAME and instruction.operands and instruction.operands[0] in defined:
            return self._written(body, defined[instruction.operands[0]])
        if instruction.opcode == "dynamic-update-slice" and len(instruction.operands) > 1:
            update = instruction.operands[1]
            shapes = defined[update].shapes if update in defined else self._shapes.get(update, [])
            return sum(shape.padded for shape in shapes)
        return sum(shape.padded for shape in instruction.shapes)

    @functools.cached_property
    def _shapes(self) -> dict[str, list[Shape]]:
        return {each.name: each.shapes for each in self.body}

    @property
    def body(self) -> list[Instruction]:
        """The instructions of the entry computation, as they are scheduled."""
        return self.computations.get(self.entry, [])

    @functools.cached_property
    def _calls(self) -> dict[str, set[int]]:
        return {each.name: self.calls_of(each) for each in self.body}

    @functools.cached_property
    def _operands(self) -> dict[str, list[str]]:
        return {each.name: each.operands for each in self.body}

    @functools.cached_property
    def _users(self) -> dict[str, list[str]]:
        users: dict[str, list[str]] = {}
        for each in self.body:
            for operand in each.operands:
                users.setdefault(operand, []).append(each.name)
        return users

    def calls_of(self, instruction: Instruction) -> set[int]:
        """The calls that an instruction and what is fused into it come of."""
        found = set() if instruction.call is None else {instruction.call}
        for name in instruction.called:
            for inner in self.computations.get(name, []):
                found |= self.calls_of(inner)
        return found


def _is_inlined(instruction: Instruction) -> bool:
    """Whether it is a computation that runs as one instruction."""
    return len(instruction.called) == 1 and instruction.opcode in ("fusion", "async-start")


def shapes(text: str) -> list[Shape]:
    """The arrays of a shape or of a tuple of shapes."""
    return [_shape(*match.groups()) for match in _SHAPE.finditer(text)]


def _shape(element: str, dims: str, layout: str | None) -> Shape:
    sizes = tuple(int(size) for size in dims.split(",") if size)
    digits = re.search(r"(\d+)", element)
    width = _SIZES.get(element, (int(digits[1]) + 7) // 8 if digits else 1)
    dense = width
    for size in sizes:
        dense *= size
    order, _, rest = (layout or "").partition(":")
    minor_to_major = [int(dim) for dim in order.split(",") if dim]
    tile = re.match(r"T\(([\d,]+)\)", rest)
    padded = list(sizes)
    if tile and minor_to_major:
        tiles = [int(size) for size in tile[1].split(",")]
        for dim, size in zip(minor_to_major, reversed(tiles), strict=False):
            padded[dim] = -(-padded[dim] // size) * size
    total = width
    for size in padded:
        total *= size
    return Shape(total, dense, "S(" not in rest, sizes)


def parse(text: str) -> Module:
    """Reads a module of scheduled HLO. What it does not know is left out."""
    computations: dict[str, list[Instruction]] = {}
    entry, current = "", ""
    for line in text.splitlines():
        header = _COMPUTATION.match(line)
        if header:
            current = header[2]
            computations[current] = []
            entry = current if header[1] else entry
            continue
        match = _INSTRUCTION.match(line)
        if match and current:
            name, shape, opcode, rest = match.groups()
            call = _CALL.search(rest)
            # libtpu writes an estimate that it could not make as a negative number without a sign.
            cycles = re.search(r'"estimated_cycles":"(\d{1,18})"', rest)
            called = re.findall(r"(?:calls|body|condition|to_apply|called_computations)=\{?%([^\s,}]+)", rest)
            operands = re.findall(r"%([^\s,)#]+)", rest.split("), ")[0])
            computations[current].append(
                Instruction(
                    name,
                    opcode,
                    shapes(shape),
                    operands,
                    int(call[1]) if call else None,
                    called if opcode != "reduce" else [],
                    int(cycles[1]) if cycles else 0,
                    int(rest.partition(")")[0]) if opcode == "parameter" else None,
                )
            )
    return Module(computations, entry)


@dataclasses.dataclass
class Allocation:
    """A block of memory, and the values that share it: (name, size, offset)."""

    size: int
    kind: str
    """"parameter", "output", "temporary", "constant" or "other"."""
    parameter: int | None
    values: list[tuple[str, int, int]]


def allocations(text: str) -> list[Allocation]:
    """The blocks in HBM."""
    return [allocation for allocation, in_memory in _allocations(text) if in_memory]


def _allocations(text: str) -> Iterator[tuple[Allocation, bool]]:
    current: tuple[Allocation, bool] | None = None
    for line in text.splitlines():
        if line.startswith("allocation "):
            if current:
                yield current
            size = re.match(r"allocation \d+: size (\d+)", line)
            head = line.split(" shape ")[0]
            parameter = re.search(r"parameter (\d+)", head)
            names = {"maybe-live-out": "output", "output": "output", "preallocated-temp": "temporary"}
            names |= {"constant": "constant", "thread-local": "local"}
            kind = next((kind for name, kind in names.items() if name in head), "other")
            kind = "parameter" if parameter else kind
            allocation = Allocation(int(size[1]) if size else 0, kind, int(parameter[1]) if parameter else None, [])
            current = (allocation, "color" not in head and kind != "local")
        elif current:
            value = _VALUE.match(line)
            if value:
                current[0].values.append((value[1], int(value[2]), int(value[3])))
    if current:
        yield current


def live_ranges(text: str) -> dict[str, tuple[int, int]]:
    """For each value the first and the last position in the schedule at which it is needed."""
    ranges: dict[str, tuple[int, int]] = {}
    _, _, text = text.partition("BufferLiveRange:")
    for match in re.finditer(r"^\s+(\S+?)\{[\d,]*\}:(\d+)-(\d+)$", text, re.MULTILINE):
        name, start, end = match[1], int(match[2]), int(match[3])
        known = ranges.get(name, (start, end))
        ranges[name] = (min(known[0], start), max(known[1], end))
    return ranges


def total_bytes(blocks: list[Allocation]) -> int:
    """What the compiler compares with the memory of the device."""
    return sum(block.size for block in blocks)
