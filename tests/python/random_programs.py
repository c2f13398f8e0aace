"""Makes random tensor programs from a seed.

A program is made by running it on the CPU as it grows, so that each line has operands that exist and fit. Some lines
that PyTorch refuses stay in: they must be refused in the same way on every device, and do no harm.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import torch
from program_runs import EXACT, INFINITE, LEAPS, MOVES, PRODUCT, SMOOTH, Reference, Step, largest

# Few shapes and few numbers: most of the time goes into compiling what has not been seen before.
SHAPES = ((), (3,), (2, 3), (3, 2), (3, 3), (1, 3), (2, 1, 3), (0, 3))
DTYPES = {
    torch.float32: 8,
    torch.int64: 4,
    torch.bool: 2,
    torch.bfloat16: 2,
    torch.int32: 1,
    torch.uint8: 1,
    torch.float16: 1,
    torch.float64: 1,
}
MODES = ("debug", "strict", "fused")
MAX_LIVE = 12
MAX_ELEMENTS = 64
# An error beyond this part of the numbers themselves says nothing any more.
USELESS = 0.05

Maker = Callable[["Generator"], "Step | None"]
MAKERS: list[tuple[int, Maker]] = []


def makes(weight: int) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        MAKERS.append((weight, maker))
        return maker

    return register


class Generator:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.reference = Reference()
        self.steps: list[Step] = []
        self.made = 0

    def program(self, length: int) -> list[Step]:
        weights = [weight for weight, _ in MAKERS]
        for maker in (create, create, create):
            self._try(maker)
        while len(self.steps) < length:
            self._try(self.random.choices([maker for _, maker in MAKERS], weights)[0])
        for name in self.reference.tensors():
            self._append(Step(f"check({name})", inputs=(name,)))
        return self.steps

    def _try(self, maker: Maker) -> None:
        step = maker(self)
        if step is None:
            return
        outcome = self.reference.step(step)
        if outcome.error:
            # What the CPU merely lacks, another device may have.
            lacks = outcome.error == "NotImplementedError" or "not implemented" in outcome.message
            if lacks or self.random.random() > 0.2:
                return
        self.steps.append(step)
        self._delete_useless()

    def _append(self, step: Step) -> None:
        self.reference.step(step)
        self.steps.append(step)

    def _delete_useless(self) -> None:
        """Deletes what grew too large or too inexact, and the oldest of too many."""
        for name, tensor in self.reference.tensors().items():
            error = self.reference.error_of(name)
            wild = error > USELESS * largest(tensor) if error < INFINITE else True
            half = tensor.dtype == torch.float16 and largest(tensor) > 1e3
            if wild or half or tensor.numel() > MAX_ELEMENTS or tensor.dim() > 4 or largest(tensor) > 1e12:
                self._append(Step(f"del {name}", inputs=(name,)))
        if len(self.reference.tensors()) > MAX_LIVE:
            name = self.random.choice(list(self.reference.tensors()))
            self._append(Step(f"del {name}", inputs=(name,)))

    # ---- operands ----------------------------------------------------------------------------------------------

    def name(self) -> str:
        self.made += 1
        return f"t{self.made}"

    def pick(self, wanted: Callable[[torch.Tensor], bool] = lambda _: True, exact: bool = False) -> str | None:
        names = [
            name
            for name, tensor in self.reference.tensors().items()
            if wanted(tensor) and not (exact and self.reference.error_of(name))
        ]
        return self.random.choice(names) if names else None

    def like(self, name: str, exact: bool = False) -> str:
        """A tensor of the same shape, more often than not."""
        shape = self.tensor(name).shape
        same = self.pick(lambda tensor: tensor.shape == shape, exact)
        other = self.pick(exact=exact)
        return same if same is not None and self.random.random() < 0.7 else other or name

    def tensor(self, name: str) -> torch.Tensor:
        value = self.reference.variables[name]
        assert isinstance(value, torch.Tensor)
        return value

    def number(self) -> str:
        numbers = [name for name, value in self.reference.variables.items() if type(value) is int]
        return self.random.choice(numbers + ["2", "3", "-1", "0", "0.5", "-1.5", "2.0", "True"])

    def dim(self, tensor: torch.Tensor) -> int:
        return self.random.randrange(-max(1, tensor.dim()), max(1, tensor.dim()))

    def dtype(self) -> torch.dtype:
        return self.random.choices(list(DTYPES), list(DTYPES.values()))[0]

    def values(self, dtype: torch.dtype, shape: tuple[int, ...]) -> str:
        def value() -> object:
            if dtype == torch.bool:
                return self.random.random() < 0.5
            if dtype.is_floating_point:
                return self.random.randrange(-12, 13) / 4
            return self.random.randrange(0 if dtype == torch.uint8 else -4, 5)

        def nest(sizes: tuple[int, ...]) -> object:
            return value() if not sizes else [nest(sizes[1:]) for _ in range(sizes[0])]

        literal = f"torch.tensor({nest(shape)}, dtype={dtype}, device=device)"
        return f"{literal}.reshape({shape})" if 0 in shape else literal

    def index(self, size: int, count: int) -> str:
        """An index tensor without repetitions where there is room for that."""
        chosen = self.random.sample(range(size), count) if count <= size else [0] * count
        return f"torch.tensor({[i - size if self.random.random() < 0.3 else i for i in chosen]}, device=device)"

    def slices(self, tensor: torch.Tensor) -> str:
        parts = []
        for size in tensor.shape:
            step = self.random.choice((1, 1, 1, 2))
            low, high = self.random.randrange(-1, size + 1), self.random.randrange(0, size + 2)
            sliced = f"{low if self.random.random() < 0.5 else ''}:{high if self.random.random() < 0.5 else ''}"
            whole = self.random.choice((":", ":", sliced, sliced, "None", str(self.random.randrange(max(1, size)))))
            parts.append(f"{whole}:{step}" if whole == sliced and step != 1 else whole)
            if whole == "None":
                parts.append(":")
        if len(parts) > 1 and self.random.random() < 0.2:
            parts[self.random.randrange(len(parts))] = "..."
        return ", ".join(parts) or self.random.choice(("...", "None", "()"))


def new(generator: Generator, expression: str, kind: str, *inputs: str) -> Step:
    name = generator.name()
    return Step(f"{name} = {expression}", kind, name, inputs)


# ---- lines that do not compute ---------------------------------------------------------------------------------


@makes(6)
def create(g: Generator) -> Step:
    shape, dtype = g.random.choice(SHAPES), g.dtype()
    filled = f"{list(shape)}, dtype={dtype}, device=device"
    expressions = [
        g.values(dtype, shape),
        g.values(dtype, shape),
        g.values(dtype, shape),
        f"torch.zeros({filled})",
        f"torch.full({list(shape)}, {g.random.choice((1, 2))}, dtype={dtype}, device=device)",
        f"torch.arange(6, dtype={dtype}, device=device)" if dtype != torch.bool else f"torch.ones({filled})",
        f"torch.eye(3, dtype={dtype}, device=device)",
    ]
    return new(g, g.random.choice(expressions), MOVES)


@makes(3)
def change_mode(g: Generator) -> Step:
    return Step(f'mode("{g.random.choice(MODES)}")')


@makes(3)
def delete(g: Generator) -> Step | None:
    name = g.pick()
    return Step(f"del {name}", inputs=(name,)) if name and len(g.reference.tensors()) > 3 else None


@makes(3)
def check(g: Generator) -> Step | None:
    name = g.pick()
    return Step(f"check({name})", inputs=(name,)) if name else None


@makes(2)
def read_number(g: Generator) -> Step | None:
    name = g.pick(lambda tensor: tensor.numel() > 0, exact=True)
    if name is None:
        return None
    number = f"n{g.random.randrange(3)}"
    reading = g.random.choice(("sum().item()", "flatten()[-1].item()", "max().item()"))
    return Step(f"{number} = int({name}.{reading}) % 5; check({number})", LEAPS, number, (name,))


# ---- views and copies ------------------------------------------------------------------------------------------


@makes(16)
def view(g: Generator) -> Step | None:
    name = g.pick()
    if name is None:
        return None
    t = g.tensor(name)
    a, b = g.dim(t), g.dim(t)
    size = t.shape[a] if t.dim() else 0
    start = g.random.randrange(size + 1)
    order = g.random.sample(range(t.dim()), t.dim())
    # as_strided goes by the storage: a permutation of the strides stays inside.
    strided = ([t.shape[i] for i in order], [t.stride(i) for i in order], t.storage_offset())
    suffixes = [
        f"[{g.slices(t)}]",
        f"[{g.slices(t)}]",
        f"[{g.slices(t)}]",
        f".transpose({a}, {b})",
        f".permute({order})",
        f".unsqueeze({a})",
        f".squeeze({a})",
        ".squeeze()",
        f".narrow({a}, {start}, {g.random.randrange(size - start + 1)})",
        f".select({a}, {g.random.randrange(max(1, size))})",
        f".expand(2, *{tuple(t.shape)})",
        f".expand({tuple(t.shape)})",
        ".view(-1)",
        ".flatten()",
        f".reshape({list(reversed(t.shape))})",
        f".view({list(t.shape) + [1]})",
        ".diagonal()",
        f".unfold({a}, 2, 1)",
        f".chunk(2, {a})[0]",
        f".split(1, {a})[-1]",
        f".unbind({a})[0]",
        ".t()",
        ".mT",
        f".movedim({a}, {b})",
        ".detach()",
        ".data",
        f".as_strided{strided}",
        f".view({t.dtype})",
        ".unsqueeze(-1).transpose(0, -1)",
    ]
    return new(g, name + g.random.choice(suffixes), MOVES, name)


@makes(4)
def copy(g: Generator) -> Step | None:
    name = g.pick()
    if name is None:
        return None
    suffixes = [
        ".clone()",
        ".contiguous()",
        ".clone().cpu().to(device)",
        ".flip(0)",
        ".roll(1)",
        ".repeat(2, 1)",
        ".repeat_interleave(2)",
        ".tril()",
        f".new_zeros({list(g.tensor(name).shape)})",
    ]
    return new(g, name + g.random.choice(suffixes), MOVES, name)


@makes(3)
def join(g: Generator) -> Step | None:
    first = g.pick()
    if first is None:
        return None
    second = g.like(first)
    joined = f"torch.{g.random.choice(('cat', 'stack'))}([{first}, {second}], {g.dim(g.tensor(first))})"
    return new(g, joined, EXACT, first, second)


@makes(4)
def convert(g: Generator) -> Step | None:
    dtype = g.dtype()
    whole = not dtype.is_floating_point
    name = g.pick(exact=whole)
    if name is None:
        return None
    # A negative or large float has no defined value as an unsigned integer.
    positive = dtype == torch.uint8 and g.tensor(name).dtype.is_floating_point
    source = f"{name}.abs().clamp(max=200)" if positive else name
    return new(g, f"{source}.to({dtype})", LEAPS if whole else EXACT, name)


# ---- arithmetic ------------------------------------------------------------------------------------------------

UNARY = {
    "{}.neg()": EXACT,
    "{}.abs()": EXACT,
    "{}.relu()": EXACT,
    "{}.clamp(-1, 2)": EXACT,
    "{} * {}": PRODUCT,
    "{} ** 2": PRODUCT,
    "{}.sin()": SMOOTH,
    "{}.tanh()": SMOOTH,
    "{}.sigmoid()": SMOOTH,
    "{}.abs().log1p()": SMOOTH,
    "{}.abs().neg().exp()": SMOOTH,
    "{}.softmax(-1)": SMOOTH,
    "{}.sign()": LEAPS,
    "{}.floor()": LEAPS,
    "{}.round()": LEAPS,
    "~{}": LEAPS,
    "{}.logical_not()": LEAPS,
    "{} // 2": LEAPS,
    "{} % 3": LEAPS,
    "{} > 0": LEAPS,
    "{}.sort(-1).values": EXACT,
    "{}.cumsum(0)": EXACT,
}
BINARY = {
    "{} + {}": EXACT,
    "{} - {}": EXACT,
    "torch.add({}, {}, alpha=2)": EXACT,
    "{} * {}": PRODUCT,
    "{} / ({}.abs() + 1)": PRODUCT,
    "torch.maximum({}, {})": EXACT,
    "torch.minimum({}, {})": EXACT,
    "{} == {}": LEAPS,
    "{} < {}": LEAPS,
    "{} >= {}": LEAPS,
    "{} != {}": LEAPS,
    "{} & {}": LEAPS,
    "{} | {}": LEAPS,
    "{} ^ {}": LEAPS,
    "torch.logical_or({}, {})": LEAPS,
}
SCALAR = {
    "{} + {}": EXACT,
    "{} - {}": EXACT,
    "{1} - {0}": EXACT,
    "{} * {}": PRODUCT,
    "{} / (abs({}) + 1)": SMOOTH,
    "{} > {}": LEAPS,
    "{} == {}": LEAPS,
    "torch.clamp({}, max={})": EXACT,
    "torch.where({0} > 0, {0}, {1})": LEAPS,
}
REDUCE = {
    "{}.sum()": EXACT,
    "{}.sum({d})": EXACT,
    "{}.sum({d}, keepdim=True)": EXACT,
    "{}.mean()": SMOOTH,
    "{}.mean({d})": SMOOTH,
    "{}.amax({d})": EXACT,
    "{}.max()": EXACT,
    "{}.min({d}).values": EXACT,
    "{}.amin({d}, keepdim=True)": EXACT,
    "{}.any({d})": LEAPS,
    "{}.all()": LEAPS,
    "{}.count_nonzero()": LEAPS,
    "{}.logsumexp({d})": SMOOTH,
}


@makes(8)
def unary(g: Generator) -> Step | None:
    form, kind = g.random.choice(list(UNARY.items()))
    name = g.pick(exact=kind == LEAPS)
    return new(g, form.replace("{}", name), kind, name) if name else None


@makes(10)
def binary(g: Generator) -> Step | None:
    form, kind = g.random.choice(list(BINARY.items()))
    left = g.pick(exact=kind == LEAPS)
    if left is None:
        return None
    right = g.like(left, exact=kind == LEAPS)
    return new(g, form.format(left, right), kind, left, right)


@makes(6)
def with_number(g: Generator) -> Step | None:
    form, kind = g.random.choice(list(SCALAR.items()))
    name = g.pick(exact=kind == LEAPS)
    return new(g, form.format(name, g.number()), kind, name) if name else None


@makes(5)
def reduce(g: Generator) -> Step | None:
    form, kind = g.random.choice(list(REDUCE.items()))
    name = g.pick(exact=kind == LEAPS)
    return new(g, form.format(name, d=g.dim(g.tensor(name))), kind, name) if name else None


@makes(3)
def multiply_matrices(g: Generator) -> Step | None:
    left = g.pick(lambda t: t.dim() > 0)
    right = g.pick(lambda t: left is not None and t.dim() > 0 and t.dtype == g.tensor(left).dtype)
    return new(g, f"{left} @ {right}", PRODUCT, left, right) if left and right else None


@makes(3)
def choose(g: Generator) -> Step | None:
    mask = g.pick(lambda t: t.dtype == torch.bool, exact=True)
    if mask is None:
        return None
    left, right = g.like(mask), g.like(mask)
    return new(g, f"torch.where({mask}, {left}, {right})", EXACT, left, right, mask)


# ---- indexing --------------------------------------------------------------------------------------------------


@makes(5)
def get(g: Generator) -> Step | None:
    name = g.pick(lambda t: t.dim() > 0 and t.numel() > 0)
    if name is None:
        return None
    t = g.tensor(name)
    d = g.dim(t)
    mask = g.pick(lambda m: m.dtype == torch.bool and m.shape == t.shape[: m.dim()], exact=True) or f"({name} > 9)"
    expressions = [
        f"{name}[{g.index(t.shape[0], 2)}]",
        f"{name}[..., {g.index(t.shape[-1], 3)}]",
        f"{name}.index_select({d}, {g.index(t.shape[d], 2)}.abs() % {t.shape[d]})",
        f"{name}.take_along_dim(torch.zeros({[1] * t.dim()}, dtype=torch.int64, device=device), {d})",
    ]
    if "(" not in mask:
        expressions += [f"{name}[{mask}]"] * 2
        return new(g, g.random.choice(expressions), MOVES, name, mask)
    return new(g, g.random.choice(expressions), MOVES, name)


@makes(14)
def write(g: Generator) -> Step | None:
    """Writes in place, which every view of the storage sees."""
    name = g.pick()
    if name is None:
        return None
    t = g.tensor(name)
    other, number = g.like(name), g.number()
    mask = g.pick(lambda m: m.dtype == torch.bool and m.shape == t.shape, exact=True)
    fits = t.dtype.is_floating_point or not g.tensor(other).dtype.is_floating_point
    lines: list[tuple[str, str, tuple[str, ...]]] = [
        (f"{name}.fill_({g.random.choice((0, 1, 2))})", MOVES, (name,)),
        (f"{name}.zero_()", MOVES, (name,)),
        (f"{name} += {number}", EXACT, (name,)),
        (f"{name} *= {number}", PRODUCT, (name,)),
        (f"{name}.add_({other})", EXACT, (name, other)),
        (f"{name}.sub_({other}, alpha=2)", EXACT, (name, other)),
        (f"{name}.mul_({other})", PRODUCT, (name, other)),
        (f"{name}.neg_()", EXACT, (name,)),
        (f"{name}.clamp_(-2, 3)", EXACT, (name,)),
        (f"{name}[{g.slices(t)}] = {g.random.choice((0, 1, 2))}", MOVES, (name,)),
        (f"{name}[{g.slices(t)}] += 1", EXACT, (name,)),
        (f"torch.add({name}, 1, out={name})", EXACT, (name,)),
        (f"{name}.t_()", MOVES, (name,)),
        (f"{name}.unsqueeze_(0)", MOVES, (name,)),
    ]
    if fits:
        lines += [
            (f"{name}.copy_({other})", EXACT, (name, other)),
            (f"{name}[{g.slices(t)}] = {other}", EXACT, (name, other)),
            (f"torch.mul({other}, {other}, out={name})", PRODUCT, (name, other))
            if g.tensor(other).shape == t.shape
            else (f"{name}.copy_({other})", EXACT, (name, other)),
        ]
    if t.dim() and t.shape[0]:
        index = g.index(t.shape[0], 2)
        lines += [
            (f"{name}[{index}] = {g.random.choice((1, 2))}", MOVES, (name,)),
            (f"{name}[{index}] += 1", EXACT, (name,)),
            (f"{name}.index_fill_(0, {index}, 1)", MOVES, (name,)),
        ]
    if mask:
        lines += [
            (f"{name}[{mask}] = {g.random.choice((0, 1))}", MOVES, (name, mask)),
            (f"{name}.masked_fill_({mask}, 1)", MOVES, (name, mask)),
        ]
    text, kind, inputs = g.random.choice(lines)
    return Step(text, kind, name, inputs)
