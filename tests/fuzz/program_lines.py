"""The kinds of lines of a random program: a function for each that writes a line with existing operands."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tests.fuzz.program_runs import EXACT, LEAPS, MOVES, PRODUCT, SMOOTH, Step
from tests.fuzz.random_programs import SHAPES, Generator, Maker

MODES = ("debug", "strict", "fused")
MAKERS: list[tuple[int, Maker]] = []


def makes(weight: int) -> Callable[[Maker], Maker]:
    def register(maker: Maker) -> Maker:
        MAKERS.append((weight, maker))
        return maker

    return register


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
    # as_strided addresses the storage: a permutation of the strides stays inside.
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
    # The conversion of a negative or large float to an unsigned integer is undefined.
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
    """Writes in place, which every view of the storage shows."""
    name = g.writable()
    if name is None:
        return None
    t = g.tensor(name)
    other, number = g.like(name), g.number()
    if g.overlaps_unseen(name, other):
        other = name
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
        # The CPU fills with a number where other devices copy and refuse overlaps.
        number_of_itself = g.tensor(other).dim() == 0 and g.shares_storage(name, other)
        assigned = f"{other}.clone()" if number_of_itself else other
        lines += [
            (f"{name}.copy_({other})", EXACT, (name, other)),
            (f"{name}[{g.slices(t)}] = {assigned}", EXACT, (name, other)),
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


@makes(4)
def shift(g: Generator) -> Step | None:
    """Writes a part of a tensor that is made of another part of it, which is read before."""
    name = g.writable(lambda t: t.dtype != torch.bool and max(t.shape, default=0) > 1)
    if name is None:
        return None
    t = g.tensor(name)
    d = g.random.choice([d for d, size in enumerate(t.shape) if size > 1])
    length = g.random.randrange(1, t.shape[d])
    to, read = (f"{name}.narrow({d}, {g.random.randrange(t.shape[d] - length + 1)}, {length})" for _ in range(2))
    made = g.random.choice((f"{read}.clone()", f"{read} + {to}", f"{read} - {read}.flip({d})", f"{read} + 1"))
    return Step(f"{to}.copy_({made})", EXACT, name, (name,))
