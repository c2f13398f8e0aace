"""Random programs some of whose sizes are the variable `n`: the same lines run again and again with another `n`."""

from __future__ import annotations

from random import Random

import torch

from tests.fuzz.program_lines import MAKERS, MODES, new
from tests.fuzz.program_runs import EXACT, LEAPS, MOVES, Reference, Step
from tests.fuzz.random_programs import Generator, Maker

# The size while a program is made. It differs from the constant sizes of the other lines.
FIRST = 5
LARGEST = 33
# The lines of a program, and the sizes at which they run.
LENGTH, SIZES = 20, 5
# Padding from the third size on, or for each upload.
SETTINGS = ("dynamic", "dynamic", "padded")
SHAPES = ("n", "n, 3", "2, n", "3, n", "n, n", "2, n, 3", "n, 1", "n + 1, 2", "2 * n")


def is_of_n(tensor: torch.Tensor) -> bool:
    return tensor.dim() > 0 and FIRST in tensor.shape


def upload(g: Generator) -> Step:
    shape, dtype = g.random.choice(SHAPES), g.dtype()
    count = " * ".join(f"({size})" for size in shape.split(", "))
    span = 5 if dtype == torch.uint8 else 25 if dtype.is_floating_point else 9
    least = 0 if dtype == torch.uint8 else span // 2
    numbers = f"(torch.arange({count}) * {g.random.randrange(1, 20)} + {g.random.randrange(20)}) % {span} - {least}"
    parts = " / 4" if dtype.is_floating_point else ""
    return new(g, f"(({numbers}){parts}).reshape({shape}).to({dtype}).to(device)", MOVES)


def create(g: Generator) -> Step:
    shape, dtype = g.random.choice(SHAPES), g.dtype()
    expressions = [
        f"torch.zeros({shape}, dtype={dtype}, device=device)",
        f"torch.ones({shape}, dtype={dtype}, device=device)",
        "torch.arange(n, device=device)",
        "torch.arange(n // 2 + 1, device=device)",
        "torch.ones(n, n, dtype=torch.bool, device=device).tril()",
    ]
    return new(g, g.random.choice(expressions), MOVES)


def shape_by_n(g: Generator) -> Step | None:
    name = g.pick(is_of_n)
    if name is None:
        return None
    axis = list(g.tensor(name).shape).index(FIRST)
    forms = [
        f"{name}.narrow({axis}, 0, n - 2)",
        f"{name}.narrow({axis}, n - 1, 1)",
        f"{name}.select({axis}, n - 2)",
        f"{name}.unsqueeze({axis}).expand({', '.join(['-1'] * axis + ['n'] + ['-1'] * (g.tensor(name).dim() - axis))})",
        f"{name}.movedim({axis}, 0).reshape(n, -1)",
        f"{name}.movedim({axis}, -1).reshape(-1, n)",
        f"{name}.flip({axis})",
        # Parts of the size: as many, or as long, and every second element.
        f"{name}.movedim({axis}, -1).narrow(-1, 0, n // 2 * 2).unflatten(-1, (2, -1))",
        f"{name}.movedim({axis}, -1).narrow(-1, 0, n // 2 * 2).unflatten(-1, (-1, 2))",
        f"{name}.movedim({axis}, -1)[..., {g.random.randrange(2)} :: {g.random.randrange(2, 4)}]",
        f"{name}.reshape(n, -1).clone().narrow(1, 0, 1).expand(-1, n).diagonal()",
    ]
    return new(g, g.random.choice(forms), MOVES, name)


def count_positions(g: Generator) -> Step | None:
    """Numbers that follow from positions in as many elements as a tensor has: its sizes in one dimension."""
    name = g.pick(is_of_n)
    if name is None:
        return None
    count = f"{name}.numel()"
    forms = [
        f"torch.arange({count}, device=device)",
        f"torch.linspace(0, {count} - 1, {count}, device=device)",
        f"torch.linspace(0, {count} - 1, {count}, dtype=torch.int64, device=device).view({name}.shape)",
        f"torch.eye(3, {count}, device=device).flip(1)",
        f"{name}.flatten().unsqueeze(0) * torch.eye(2, {count}, dtype={name}.dtype, device=device)",
    ]
    return new(g, g.random.choice(forms), EXACT, name)


def grow(g: Generator) -> Step | None:
    name = g.pick(is_of_n)
    if name is None:
        return None
    axis = list(g.tensor(name).shape).index(FIRST)
    return new(g, f"torch.cat([{name}, {name}.narrow({axis}, 0, 1)], {axis})", EXACT, name)


def reduce_by_n(g: Generator) -> Step | None:
    name = g.pick(is_of_n)
    if name is None:
        return None
    axis = list(g.tensor(name).shape).index(FIRST)
    form = g.random.choice(("sum({})", "amax({})", "amin({})", "cumsum({})", "sum({}, keepdim=True)"))
    return new(g, f"{name}.{form.format(axis)}", EXACT, name)


def join_many(g: Generator) -> Step | None:
    """Joins `n` tensors of the same sizes: five at first."""
    name = g.pick()
    if name is None:
        return None
    axis = g.dim(g.tensor(name))
    forms = [
        f"torch.stack([{name} + i for i in range(n)], {axis})",
        f"torch.cat([{name} - i for i in range(n)], {axis})",
        f"torch.cat([{name}] * n, {axis})",
        f"torch.stack([{name}.sum() + i for i in range(n)])",
        f"torch.stack([{name}] * (n + 1), -1).amax(-1)",
    ]
    if is_of_n(g.tensor(name)):
        place = list(g.tensor(name).shape).index(FIRST)
        forms += [
            f"torch.stack({name}.unbind({place}), {axis})",
            f"torch.cat([{name}.narrow({place}, n - 1 - i, 1) for i in range(n)], {place})",
        ]
    return new(g, g.random.choice(forms), EXACT, name)


def count_by_data(g: Generator) -> Step | None:
    name = g.pick(exact=True)
    if name is None:
        return None
    forms = [
        # Their memory is that of the largest number of results.
        f"{name}.nonzero().contiguous()",
        f"torch.where({name} > 0)[0].clone()",
        f"{name}.masked_select({name} > 0)",
        f"{name}.nonzero().sum(0)",
        f"{name}.flatten().index_select(0, {name}.flatten().nonzero().flatten())",
    ]
    return new(g, g.random.choice(forms), LEAPS, name)


CHANGING: list[tuple[int, Maker]] = [
    (12, upload),
    (3, create),
    (2, count_positions),
    (8, shape_by_n),
    (3, grow),
    (4, reduce_by_n),
    (4, join_many),
    (3, count_by_data),
    *MAKERS,
]


def program(seed: int, length: int = LENGTH, sizes: int = SIZES) -> list[Step]:
    """The lines of a random program, once for each of several sizes. The last size is one that was seen before."""
    random = Random(seed)
    generator = Generator(seed, CHANGING)
    generator.reference.step(Step(f"n = {FIRST}"))
    lines = generator.program(length)
    given = [FIRST, *(random.randrange(2, LARGEST) for _ in range(sizes - 2))]
    given.append(random.choice(given))
    steps = [Step(f'sizes("{random.choice(SETTINGS)}")'), Step(f'mode("{random.choice(MODES)}")')]
    reference = Reference()
    for n in given:
        # Numbers in the lines, such as indices, are out of range at some sizes.
        steps += [step for step in (Step(f"n = {n}"), *lines) if not reference.step(step).error]
    return steps
