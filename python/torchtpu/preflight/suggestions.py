"""What would make a step faster. A rule nominates a change; the compiler judges it, and its gain decides."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import NamedTuple

from torchtpu.preflight.recording import Program, Recording
from torchtpu.preflight.work import (
    LANES,
    Attention,
    FilledHeads,
    Product,
    Work,
    functions_of_calls,
    products_of_functions,
)

# A type with elements of int64; not the type of an attribute such as `padding`, which is always int64.
_INT64 = r"((?<!value) = dense<[^>]*> : tensor<[\dx]*i64>)|(?:(?<=x)|(?<=tensor<))i64(?=>)"

# A constant such as the least int64, of a type that has become int32.
_BEYOND_INT32 = r"dense<(-?\d{10,})>( : tensor<[\dx]*i32>)"

# A change that gains less of a step is not worth a line, and so many are shown.
LEAST_GAIN = 0.02
MOST = 8


@dataclasses.dataclass(frozen=True)
class Nomination:
    """A change that may pay."""

    what: str
    line: str
    replacements: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = ()
    """Regular expressions and what they become in the program's text."""
    change: str = ""
    """A change of `torchtpu.preflight.changes`, with which the script must run again."""

    def applied(self, program: Program) -> Program:
        """The program with the change in its text."""
        text = program.text
        for pattern, replacement in self.replacements:
            text = re.sub(pattern, replacement, text)
        return dataclasses.replace(program, text=text)


@dataclasses.dataclass
class Suggestion:
    """A change with what the compiler says of it."""

    what: str
    line: str
    gain: float
    """The part of a step's time that it saves."""
    step_seconds: tuple[float, float]


class _Call(NamedTuple):
    """A call of the program, with its matrix products and kernels."""

    operator: str
    line: str
    header: str
    """The arguments of its function, with their types."""
    work: list[Product | Work]
    runs: int
    """How often it runs in a step."""

    @property
    def products(self) -> list[Product]:
        """Its matrix products."""
        return [each for each in self.work if isinstance(each, Product)]


def nominate(recorded: Recording) -> list[Nomination]:
    """Changes that may make a step of the recording faster."""
    calls = [call for program in recorded.programs for call in _calls(program)]
    return [*_precision(calls), *_narrow_heads(calls), *_padded(calls), *_wide_integers(calls)]


def _calls(program: Program) -> Iterator[_Call]:
    functions = products_of_functions(program.text)
    headers = dict(re.findall(r"func\.func private @(\w+)\(([^)]*)\)", program.text))
    for (operator, line, _), called in zip(program.calls, functions_of_calls(program.text), strict=False):
        yield _Call(operator, line, headers.get(called, ""), functions.get(called, []), program.runs)


def _precision(calls: Sequence[_Call]) -> Iterator[Nomination]:
    """float32 products in six parts."""
    costs: Counter[str] = Counter()
    for call in calls:
        for product in call.products:
            if product.parts > 1:
                costs[call.line] += int(product.work().passes) * call.runs
    if costs:
        yield Nomination(
            "multiply float32 matrices in bfloat16: torch.set_float32_matmul_precision('medium'), or autocast",
            costs.most_common(1)[0][0],
            ((r"#stablehlo<precision HIGH(EST)?>", "#stablehlo<precision DEFAULT>"),),
        )


def _narrow_heads(calls: Sequence[_Call]) -> Iterator[Nomination]:
    """Attention whose heads fill a part of the lanes."""
    for call in calls:
        widths = [each.contracted for each in call.products if each.batch > 1 and min(each.rows, each.columns) >= LANES]
        if any(isinstance(each, Attention) for each in call.work):
            query = re.search(r"tensor<\d+x\d+x\d+x(\d+)x\w+>", call.header)
            widths += [int(query[1])] if query else []
            widths += [each.width for each in call.work if isinstance(each, FilledHeads)]
        for width in widths:
            if width < LANES and LANES % width == 0:
                what = f"heads of {LANES} instead of {width}, and fewer of them: the chip computes on {LANES} lanes"
                yield Nomination(what, call.line, change=f"head_dim={LANES}")
                return


def _padded(calls: Sequence[_Call]) -> Iterator[Nomination]:
    """Dimensions of matrix products that leave much of their last tile empty."""
    total = sum(product.work().passes * call.runs for call in calls for product in call.products) or 1.0
    losses: defaultdict[int, float] = defaultdict(float)
    lines: dict[int, str] = {}
    for call in calls:
        if "attention" in call.operator:  # its heads are a nomination of their own
            continue
        for product in call.products:
            for field in ("columns", "contracted"):
                size = getattr(product, field)
                if size <= LANES or size % LANES == 0:
                    continue
                full = dataclasses.replace(product, **{field: size // LANES * LANES})
                losses[size] += (product.work().passes - full.work().passes) * call.runs
                lines.setdefault(size, call.line)
    for size, loss in losses.items():
        if loss >= LEAST_GAIN * total:
            smaller = size // LANES * LANES
            what = f"a dimension of {smaller} instead of {size}: matrices are multiplied in tiles of {LANES}"
            # Sizes in types and attributes; a name such as %v4097 is none of them.
            yield Nomination(what, lines[size], ((rf"(?<![\w%@.]){size}(?=x|[,\]>])|(?<=x){size}(?=x)", str(smaller)),))


def _wide_integers(calls: Sequence[_Call]) -> Iterator[Nomination]:
    """Large tensors of int64, which the chip computes as pairs of 32 bits."""
    sizes: Counter[str] = Counter()
    total = 0
    for call in calls:
        for dims, element in re.findall(r"tensor<((?:\d+x)+)(\w+)>", call.header):
            elements = prod(map(int, dims[:-1].split("x"))) * call.runs
            total += elements
            sizes[call.line] += elements if element == "i64" else 0
    if sum(sizes.values()) > LEAST_GAIN * total:
        what = "whole numbers in int32 instead of int64: the chip computes on 32 bits"
        yield Nomination(what, sizes.most_common(1)[0][0], ((_INT64, _narrowed), (_BEYOND_INT32, _clamped)))


def _narrowed(found: re.Match[str]) -> str:
    return found[1] or "i32"


def _clamped(found: re.Match[str]) -> str:
    return f"dense<{max(-(2**31), min(int(found[1]), 2**31 - 1))}>{found[2]}"
