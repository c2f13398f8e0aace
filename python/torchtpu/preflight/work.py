"""The arithmetic of a program's matrix products and convolutions, from its StableHLO text."""

from __future__ import annotations

import dataclasses
import re
from math import prod

# A matrix unit multiplies bfloat16. float32 is multiplied in parts of bfloat16: so many products for one.
_PARTS = {"HIGHEST": 6.0, "HIGH": 3.0, "DEFAULT": 1.0}
# The matrix unit works on tiles: contracted dimensions and columns of the result fill 128 places, rows 8.
LANES, _SUBLANES = 128, 8
# Heads [batch, heads, places, width] whose width becomes that of the lanes.
_FILLED = re.compile(rf"\(tensor<(?:\d+x){{3}}(\d+)x\w+>, tensor<\w+>\) -> tensor<(?:\d+x){{3}}{LANES}x")


@dataclasses.dataclass(frozen=True)
class Work:
    """The arithmetic of a call. `flops` is twice the multiplications; `passes` is what the matrix unit does for them,
    with float32 in parts and tiles that are not full."""

    flops: float = 0.0
    passes: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.passes + other.passes)


NONE = Work()


class Attention(Work):
    """The work of an attention kernel."""


@dataclasses.dataclass(frozen=True)
class FilledHeads(Work):
    """Heads that are filled up with zeros for a kernel."""

    width: int = 0
    """The places that they had."""


@dataclasses.dataclass(frozen=True)
class Product:
    """A matrix product: sizes of a batch, of the rows and columns of each result, and of what is contracted."""

    batch: int
    rows: int
    columns: int
    contracted: int
    parts: float

    def work(self) -> Work:
        """Its arithmetic."""
        flops = 2.0 * self.batch * self.rows * self.columns * self.contracted
        # The operands may change sides, so that the smaller dimension gives the rows.
        rows, columns = sorted((self.rows, self.columns))
        tiles = _up(rows, _SUBLANES) * _up(columns, LANES) * _up(self.contracted, LANES)
        return Work(flops, 2.0 * self.batch * tiles * self.parts)


def _up(size: int, tile: int) -> int:
    return -(-size // tile) * tile


def products_of_functions(text: str) -> dict[str, list[Product | Work]]:
    """For each function of a module its products, with those of the functions it calls; for what is no plain product,
    such as a convolution, its work."""
    functions: dict[str, list[Product | Work]] = {}
    callees: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        header = re.match(r"func\.func (?:public|private) @(\w+)\(", line)
        if header:
            name = header[1]
            functions[name], callees[name] = [], []
        elif '"stablehlo.dot_general"' in line:
            functions[name].append(_product(line))
        elif '"stablehlo.convolution"' in line:
            functions[name].append(_convolution(line))
        elif "@tpu_custom_call(" in line:
            functions[name].append(_attention(line))
        elif "stablehlo.pad" in line and (filled := _FILLED.search(line)):
            functions[name].append(FilledHeads(width=int(filled[1])))
        elif name not in ("", "main"):
            callees[name] += re.findall(r"(?:callee = |\bcall )@(\w+)", line)

    def whole(name: str) -> list[Product | Work]:
        return [*functions.get(name, ()), *(each for callee in callees.get(name, ()) for each in whole(callee))]

    return {name: whole(name) for name in functions}


def functions_of_calls(text: str) -> list[str]:
    """The function of each call in `@main`."""
    return re.findall(r"func\.call @(\w+)\(", text.split("func.func private")[0])


def work_of_calls(text: str) -> dict[int, Work]:
    """The arithmetic of each call of `@main`."""
    functions = {
        name: sum((each.work() if isinstance(each, Product) else each for each in found), NONE)
        for name, found in products_of_functions(text).items()
    }
    return {number: functions.get(called, NONE) for number, called in enumerate(functions_of_calls(text))}


# The products of the kernels of splash attention, by the beginnings of their names: scores and results in the forward
# pass; in the backward pass the scores once more, and three or four gradients.
_SPLASH = {"splash_mha_fwd": 2, "splash_mha_dkv": 5, "splash_mha_dq": 3}


def _attention(line: str) -> Work:
    """The work of a kernel of splash attention. It skips the half of the scores that a causal mask hides."""
    name = re.search(r'kernel_name = "(\w+)"', line)
    count = next((count for start, count in _SPLASH.items() if name and name[1].startswith(start)), 0)
    taken = line.rpartition(" : ")[2].partition(" -> ")[0]
    found = [list(map(int, each[:-1].split("x"))) for each in re.findall(r"tensor<((?:\d+x){3,})(?:bf16|f32)>", taken)]
    if not count or len(found) < 2:
        return NONE
    (*heads, queries, width), (*_, keys, _) = found[:2]
    product = Product(prod(heads), queries, keys, width, 1.0).work()
    return Attention(count * product.flops, count * product.passes / 2)


def _types(line: str) -> tuple[list[list[int]], list[int], str]:
    """The sizes of the operands and of the result, and the operands' element type."""
    operands, _, result = line.rpartition(" : ")[2].partition(" -> ")
    tensors = re.findall(r"tensor<([^>]*)>", operands)
    sizes = [[int(size) for size in re.findall(r"(\d+)x", tensor)] for tensor in tensors]
    return sizes, [int(size) for size in re.findall(r"(\d+)x", result)], tensors[0].rpartition("x")[2]


def _parts(line: str, element: str) -> float:
    precision = re.search(r"#stablehlo<precision (\w+)>", line)
    return _PARTS.get(precision[1] if precision else "DEFAULT", 1.0) if element == "f32" else 1.0


def _product(line: str) -> Product:
    def dims(name: str) -> list[int]:
        found = re.search(rf"{name} = \[([\d, ]*)\]", line)
        return [int(dim) for dim in found[1].split(",") if dim.strip()] if found else []

    sizes, _, element = _types(line)
    batch, contracted = dims("lhs_batching_dimensions"), dims("lhs_contracting_dimensions")
    others = [*dims("rhs_batching_dimensions"), *dims("rhs_contracting_dimensions")]
    return Product(
        prod(sizes[0][dim] for dim in batch),
        prod(size for dim, size in enumerate(sizes[0]) if dim not in (*batch, *contracted)),
        prod(size for dim, size in enumerate(sizes[1]) if dim not in others),
        prod(sizes[0][dim] for dim in contracted),
        _parts(line, element),
    )


def _convolution(line: str) -> Work:
    sizes, results, element = _types(line)
    # The kernel has the multiplications of one result for each of its outputs.
    outputs = re.search(r"x\[([^\]]*)\]", line)
    place = outputs[1].replace(" ", "").split(",").index("o") if outputs and "o" in outputs[1] else 0
    flops = 2.0 * prod(results) * prod(sizes[1]) / max(1, sizes[1][place])
    return Work(flops, flops * _parts(line, element))
