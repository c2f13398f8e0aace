"""What a run of a program takes, by the modules of its operators."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from typing import NamedTuple

from torchtpu.preflight import hlo
from torchtpu.preflight.chips import Chip
from torchtpu.preflight.recording import Program
from torchtpu.preflight.work import NONE, Work, work_of_calls

# The upper end of the range assumes that a fusion reaches this share of the peak. The compiler's estimate of cycles
# replaces it where there is one.
_LEAST_EFFICIENCY = 0.5

# The compiler's cycles, over what arithmetic and traffic take, up to which these count as the reason.
_EXPLAINED = 2.0

# Instructions that pass a value on.
PASSING = ("bitcast", "get-tuple-element", "copy-done")

# Instructions that only name or pass on what is computed, or that are the ends of what runs beside the others.
_FREE = frozenset(
    [
        *PASSING,
        "parameter",
        "constant",
        "tuple",
        "slice-done",
        "async-done",
        "after-all",
        "partition-id",
        "replica-id",
        "optimization-barrier",
        "custom-call-done",
        "all-gather-done",
        "all-reduce-done",
    ]
)


@dataclasses.dataclass
class Part:
    """What a module costs in a step."""

    name: str
    seconds: tuple[float, float] = (0.0, 0.0)
    flops: float = 0.0
    memory_bytes: int = 0
    bound: str = ""
    line: str = ""
    """The line of its operators that take the most time."""
    network_seconds: float = 0.0
    """Of its collectives, which may run beside the rest."""


class _Cost(NamedTuple):
    """What an instruction costs, and the number of the call that it serves."""

    seconds: tuple[float, float]
    flops: float
    traffic: int
    bound: str
    call: int | None


def time_of(program: Program, module: hlo.Module, chip: Chip) -> tuple[list[Part], tuple[float, float], float, float]:
    """What the runs of a program in a step take, by module; then, of one run, the seconds at the best and at the least,
    the arithmetic, and the seconds of that at the chip's peak.

    For each instruction that runs by itself, its time at the best is the longer of its arithmetic and its traffic.
    """
    of_calls = work_of_calls(program.text)
    costs = _costs(program, module, chip, dict(of_calls))
    parts: dict[str, Part] = {}
    bounds: defaultdict[str, Counter[str]] = defaultdict(Counter)
    lines: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for calls in program.calls_of_runs:
        for cost in costs:
            _, line, owner = calls[cost.call] if cost.call is not None and cost.call < len(calls) else ("", "", "")
            part = parts.setdefault(owner or "other", Part(owner or "other"))
            part.seconds = (part.seconds[0] + cost.seconds[0], part.seconds[1] + cost.seconds[1])
            part.flops += cost.flops
            part.memory_bytes += cost.traffic
            weight = max(1, int(cost.seconds[0] * 1e12))
            bounds[part.name][cost.bound] += weight
            lines[part.name][line] += weight
    for name, part in parts.items():
        part.bound = bounds[name].most_common(1)[0][0]
        part.line = lines[name].most_common(1)[0][0]
    low, high = (sum(cost.seconds[end] for cost in costs) for end in (0, 1))
    total = sum(of_calls.values(), NONE)
    # Prefetches run beside the computation, and use bandwidth too.
    everything = sum(cost.traffic for cost in costs) + sum(map(_prefetched, module.body))
    least = max(total.passes / chip.flops, everything / chip.memory_bandwidth)
    ordered = sorted(parts.values(), key=lambda part: -part.seconds[0])
    return ordered, (max(low, least), max(high, least)), total.flops, total.flops / chip.flops


def _costs(program: Program, module: hlo.Module, chip: Chip, left: dict[int, Work]) -> list[_Cost]:
    costs = []
    for instruction in module.body:
        if instruction.opcode in _FREE or _is_prefetch(instruction):
            continue
        # The arithmetic of a call belongs to the instruction that has its product.
        products = _products(module, instruction)
        work = sum((left.pop(call, NONE) for call in products), NONE)
        traffic = module.traffic(instruction)
        compute, memory = work.passes / chip.flops, traffic / chip.memory_bandwidth
        low = max(compute, memory)
        high = max(instruction.cycles / chip.clock, low) if instruction.cycles else low / _LEAST_EFFICIENCY
        bound = "compute" if compute >= memory else "memory"
        if instruction.cycles and high > _EXPLAINED * low:
            # Neither explains the compiler's cycles: the vector unit is left.
            bound = "vector unit"
        call = max(products) if products else module.call_of(instruction.name)
        costs.append(_Cost((low, high), work.flops, traffic, bound, call))
    return costs


def _is_prefetch(instruction: hlo.Instruction) -> bool:
    return instruction.opcode.endswith("-start") and "async" not in instruction.opcode


def _prefetched(instruction: hlo.Instruction) -> int:
    """The bytes in HBM of a copy that runs beside the computation."""
    if instruction.opcode != "copy-start":
        return 0
    # The result, the operand, and a context.
    return sum(shape.padded for shape in instruction.shapes[:2] if shape.in_memory)


def _products(module: hlo.Module, instruction: hlo.Instruction) -> set[int]:
    """The calls whose matrix products, convolutions or kernels an instruction computes."""
    found = set()
    if instruction.opcode in ("convolution", "dot", "custom-call") or "convolution" in instruction.opcode:
        found |= {instruction.call} if instruction.call is not None else set()
    for name in instruction.called:
        for inner in module.computations.get(name, []):
            found |= _products(module, inner)
    return found
