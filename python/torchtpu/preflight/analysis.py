"""From what the compiler wrote down to figures: memory by role and owner, time by module, limits."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict

from torchtpu.preflight import hlo
from torchtpu.preflight.chips import Chip
from torchtpu.preflight.compiler import Dumps
from torchtpu.preflight.modules import BACKWARD, OPTIMIZER, Storage, label
from torchtpu.preflight.recording import Program
from torchtpu.preflight.timing import PASSING, Part, time_of

ROLES = (
    "parameters",
    "gradients",
    "optimizer_state",
    "buffers",
    "gathered",
    "inputs",
    "activations",
    "temporaries",
    "packing_loss",
)

# The moments of a schedule at which memory is shown.
_MOMENTS = 160


@dataclasses.dataclass
class Owner:
    """What takes memory: bytes, the role, the name of a parameter or module, and the line."""

    bytes: int
    role: str
    name: str
    line: str


@dataclasses.dataclass
class Analysis:
    """What one program needs of a chip."""

    total_bytes: int
    """What the compiler compares with the memory of the device, and the storages beside the program."""
    bytes: dict[str, int]
    owners: list[Owner]
    parts: list[Part]
    """Of all runs in a step."""
    seconds: tuple[float, float]
    """Of one run, as the arithmetic."""
    flops: float
    flops_seconds: float
    """What the arithmetic alone takes at the chip's peak."""
    padding: list[Owner]
    """Arrays whose layout takes at least twice their elements."""
    out_of_memory: str
    rematerialized: int
    history: list[dict[str, int]]
    """Bytes by role at moments of the schedule, in order."""


def analyze(program: Program, dumps: Dumps, chip: Chip) -> Analysis:
    """What the compiler has said of a program, in figures."""
    module = hlo.parse(dumps.code or dumps.schedule)
    blocks = hlo.allocations(dumps.assignment)
    ranges = hlo.live_ranges(dumps.live_ranges)
    owners, owner_of, constant, temporary = _owners(program, module, blocks, ranges)
    sums: Counter[str] = Counter(dict.fromkeys(ROLES, 0))
    for owner in owners:
        sums[owner.role] += owner.bytes
    total = hlo.total_bytes(blocks)
    if not blocks and dumps.out_of_memory:
        total = _needed(dumps.out_of_memory)
    sums["packing_loss"] += total - sum(sums.values())
    for storage, size in program.others:
        sums[storage.role] += size
        total += size
        owners.append(Owner(size, *storage))
        constant[storage.role] += size
    parts, seconds, flops, peak_seconds = time_of(program, module, chip)
    return Analysis(
        total,
        dict(sums),
        sorted(_merge(owners), key=lambda owner: -owner.bytes),
        parts,
        seconds,
        flops,
        peak_seconds,
        _padding(module, owner_of),
        dumps.out_of_memory,
        len(re.findall(r"%\S*\.remat\d* = ", dumps.schedule)),
        _history(constant, temporary, sum(block.size for block in blocks if block.kind == "temporary"), ranges),
    )


def _needed(message: str) -> int:
    """The bytes that a refusal names."""
    units = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    found = re.search(r"\(([\d.]+)([KMGT])\)", message) or re.search(r"[Uu]sed ([\d.]+)([KMGT])", message)
    return int(float(found[1]) * units[found[2]]) if found else 0


# ---- memory ----------------------------------------------------------------------------------------------------


def _owners(
    program: Program, module: hlo.Module, blocks: list[hlo.Allocation], ranges: dict[str, tuple[int, int]]
) -> tuple[list[Owner], dict[str, Owner], Counter[str], dict[str, Owner]]:
    """What the blocks of memory are for: temporaries at the moment when most is in use. Then, by name, the owners of
    these; the bytes by role that are in use all the time; and, by name, the owners of all temporaries."""
    defined = {each.name: each for each in module.body}
    inner = {each.name: each for body in module.computations.values() for each in body}
    owners: list[Owner] = []
    owner_of: dict[str, Owner] = {}
    constant: Counter[str] = Counter()
    temporary: dict[str, Owner] = {}
    results = _result_names(program, defined, module)
    modules = _last_module(program, module)

    def of_value(name: str, size: int) -> Owner:
        instruction = defined.get(name) or inner.get(name)
        call = instruction.call if instruction else None
        call = module.call_of(name) if call is None else call
        if call is None or call >= len(program.calls):
            return Owner(size, "temporaries", name.split(".")[0], "")
        operator, line, owner = program.calls[call]
        role = "temporaries"
        last = modules.get(name, "")
        is_forward = not owner.endswith(BACKWARD) and owner != OPTIMIZER
        if is_forward and (last.endswith(BACKWARD)):
            role = "activations"
        elif owner.endswith(BACKWARD) and last == OPTIMIZER:
            role = "gradients"
        return Owner(size, role, label(owner, operator), line)

    for block in blocks:
        if block.parameter is not None and block.parameter < len(program.inputs):
            role, name, line = program.inputs[block.parameter]
            owners.append(Owner(block.size, role, name or f"input {block.parameter}", line))
            constant[role] += block.size
        elif block.kind == "temporary":
            temporary |= {name: of_value(name, size) for name, size, _ in block.values}
            for name, size in _at_peak(block, ranges):
                owners.append(of_value(name, size))
                owner_of[name] = owners[-1]
        else:
            name = block.values[0][0] if block.values else ""
            result = results.get(name)
            found = of_value(name, block.size)
            if result is not None and result.role != "inputs":
                found = Owner(block.size, result.role, result.name, found.line or result.line)
            owners.append(found)
            constant[found.role] += found.bytes
    return owners, owner_of, constant, temporary


def _history(
    constant: Counter[str], temporary: dict[str, Owner], room: int, ranges: dict[str, tuple[int, int]]
) -> list[dict[str, int]]:
    """Bytes by role at `_MOMENTS` moments, or at each position of a shorter schedule: the most of each moment.
    Temporaries have so much `room`: those that lie in the same place count for a part."""
    end = max((last for _, last in ranges.values()), default=0) + 1
    width = max(1, -(-end // _MOMENTS))
    moments = [Counter(constant) for _ in range(-(-end // width))]
    changes: defaultdict[int, Counter[str]] = defaultdict(Counter)
    for name, owner in temporary.items():
        if name in ranges:
            first, last = ranges[name]
            changes[first][owner.role] += owner.bytes
            changes[last + 1][owner.role] -= owner.bytes
    now: Counter[str] = Counter()
    for position in range(end):
        now.update(changes.get(position, {}))
        part = min(1.0, room / max(1, sum(now.values())))
        used = constant + Counter({role: int(size * part) for role, size in now.items()})
        if sum(used.values()) >= sum(moments[position // width].values()):
            moments[position // width] = used
    return [dict(moment) for moment in moments]


def _at_peak(block: hlo.Allocation, ranges: dict[str, tuple[int, int]]) -> list[tuple[str, int]]:
    """The values that share a block at the moment when they take most of it."""
    events: defaultdict[int, int] = defaultdict(int)
    for name, size, _ in block.values:
        start, end = ranges.get(name, (0, 0))
        events[start] += size
        events[end + 1] -= size
    most, peak, now = -1, 0, 0
    for position in sorted(events):
        now += events[position]
        if now > most:
            most, peak = now, position
    found: dict[int, tuple[str, int]] = {}
    for name, size, offset in block.values:
        start, end = ranges.get(name, (0, 0))
        # A value that takes another's place in the same memory counts once.
        if start <= peak <= end and found.get(offset, ("", -1))[1] < size:
            found[offset] = (name, size)
    return list(found.values())


def _last_module(program: Program, module: hlo.Module) -> dict[str, str]:
    """For each value of the schedule the module of the last instruction that takes it."""
    last: dict[str, str] = {}
    through: dict[str, str] = {}
    for instruction in module.body:
        calls = [call for call in module.calls_of(instruction) if call < len(program.calls)]
        owner = program.calls[max(calls)][2] if calls else ""
        for operand in instruction.operands:
            name = operand
            if owner:
                last[name] = owner
            # What only passes a value on keeps it alive.
            while name in through:
                name = through[name]
                if owner:
                    last[name] = owner
        if instruction.opcode in PASSING and instruction.operands:
            through[instruction.name] = instruction.operands[0]
    return last


def _result_names(program: Program, defined: dict[str, hlo.Instruction], module: hlo.Module) -> dict[str, Storage]:
    """The values that are results."""
    body = module.body
    root = body[-1] if body else None
    if root is None or root.opcode != "tuple":
        return {}
    named: dict[str, Storage] = {}
    for operand, described in zip(root.operands, program.results, strict=False):
        name = operand
        for _ in range(8):
            named[name] = described
            instruction = defined.get(name)
            if instruction is None or instruction.opcode not in PASSING:
                break
            name = instruction.operands[0] if instruction.operands else ""
    return named


def _merge(owners: list[Owner]) -> list[Owner]:
    """One owner for all with the same name and line."""
    merged: dict[tuple[str, str, str], Owner] = {}
    for owner in owners:
        key = (owner.role, owner.name, owner.line)
        known = merged.setdefault(key, Owner(0, *key))
        known.bytes += owner.bytes
    return list(merged.values())


def _padding(module: hlo.Module, owner_of: dict[str, Owner]) -> list[Owner]:
    wasted = []
    for instruction in module.body:
        for shape in instruction.shapes:
            if shape.in_memory and shape.padded >= 2 * shape.dense and shape.padded - shape.dense > 2**20:
                owner = owner_of.get(instruction.name)
                if owner is not None:
                    dims = "x".join(map(str, shape.dims))
                    wasted.append(Owner(shape.padded - shape.dense, owner.role, f"{owner.name} [{dims}]", owner.line))
    return sorted(_merge(wasted), key=lambda owner: -owner.bytes)
