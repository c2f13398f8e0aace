"""What would make a step faster. A rule nominates a change; the compiler judges it, and its gain decides."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Iterator

from torchtpu.preflight.recording import Program, Recording
from torchtpu.preflight.work import Attention, Product, functions_of_calls, products_of_functions

# A change that gains less of a step is not worth a line, and so many are shown.
LEAST_GAIN = 0.02
MOST = 8
_LANES = 128


@dataclasses.dataclass(frozen=True)
class Nomination:
    """A change that may pay."""

    what: str
    line: str
    replacements: tuple[tuple[str, str], ...] = ()
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


def nominate(recorded: Recording) -> list[Nomination]:
    """Changes that may make a step of the recording faster."""
    if not recorded.programs:
        return []
    program = recorded.programs[0]
    return [*_precision(program), *_narrow_heads(program), *_padded(program)]


def _precision(program: Program) -> Iterator[Nomination]:
    """float32 products in six parts."""
    costs: Counter[str] = Counter()
    for line, product, _ in _products(program):
        if product.parts > 1:
            costs[line] += int(product.work().passes)
    if costs:
        yield Nomination(
            "multiply float32 matrices in bfloat16: torch.set_float32_matmul_precision('medium'), or autocast",
            costs.most_common(1)[0][0],
            ((r"#stablehlo<precision HIGH(EST)?>", "#stablehlo<precision DEFAULT>"),),
        )


def _narrow_heads(program: Program) -> Iterator[Nomination]:
    """Attention whose heads fill a part of the lanes."""
    headers = dict(re.findall(r"func\.func private @(\w+)\(([^)]*)\)", program.text))
    functions = products_of_functions(program.text)
    for (_, line, _), called in zip(program.calls, functions_of_calls(program.text), strict=False):
        widths = [
            each.contracted
            for each in functions.get(called, ())
            if isinstance(each, Product) and each.batch > 1 and min(each.rows, each.columns) >= _LANES
        ]
        if any(isinstance(each, Attention) for each in functions.get(called, ())):
            widths += [
                int(width) for width in re.findall(r"tensor<\d+x\d+x\d+x(\d+)x\w+>", headers.get(called, ""))[:1]
            ]
        for width in widths:
            if width < _LANES and _LANES % width == 0:
                what = f"heads of {_LANES} instead of {width}, and fewer of them: the chip computes on {_LANES} lanes"
                yield Nomination(what, line, change=f"head_dim={_LANES}")
                return


def _padded(program: Program) -> Iterator[Nomination]:
    """Dimensions of matrix products that leave much of their last tile empty."""
    total = sum(product.work().passes for _, product, _ in _products(program)) or 1.0
    losses: defaultdict[int, float] = defaultdict(float)
    lines: dict[int, str] = {}
    for line, product, operator in _products(program):
        if "attention" in operator:  # its heads are a nomination of their own
            continue
        for field in ("columns", "contracted"):
            size = getattr(product, field)
            if size <= _LANES or size % _LANES == 0:
                continue
            full = dataclasses.replace(product, **{field: size // _LANES * _LANES})
            losses[size] += product.work().passes - full.work().passes
            lines.setdefault(size, line)
    for size, loss in losses.items():
        if loss >= LEAST_GAIN * total:
            smaller = size // _LANES * _LANES
            what = f"a dimension of {smaller} instead of {size}: matrices are multiplied in tiles of {_LANES}"
            # Sizes in types and attributes; a name such as %v4097 is none of them.
            yield Nomination(what, lines[size], ((rf"(?<![\w%@.]){size}(?=x|[,\]>])|(?<=x){size}(?=x)", str(smaller)),))


def _products(program: Program) -> Iterator[tuple[str, Product, str]]:
    functions = products_of_functions(program.text)
    for (operator, line, _), called in zip(program.calls, functions_of_calls(program.text), strict=False):
        for product in functions.get(called, ()):
            if isinstance(product, Product):
                yield line, product, operator
