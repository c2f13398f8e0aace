"""Makes random tensor programs from a seed.

A program runs on the CPU while it is made, so that each line has existing and suitable operands. Some lines that
PyTorch refuses are kept: every device must refuse them in the same way, without side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import torch

from tests.fuzz.program_runs import INFINITE, Reference, Step, largest

# Few shapes and few numbers, because most of the time is spent on compiling new programs.
SHAPES = ((), (3,), (2, 3), (3, 2), (3, 3), (1, 3), (2, 1, 3), (0, 3), (4, 6))
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
MAX_LIVE = 12
MAX_ELEMENTS = 64
# A relative error above this bound makes a comparison useless.
USELESS = 0.05

Maker = Callable[["Generator"], "Step | None"]


class Generator:
    def __init__(self, seed: int, makers: Sequence[tuple[int, Maker]]) -> None:
        self.makers = makers  # with the weights of their lines
        self.random = Random(seed)
        self.reference = Reference()
        self.steps: list[Step] = []
        self.made = 0

    def program(self, length: int) -> list[Step]:
        weights = [weight for weight, _ in self.makers]
        for _ in range(3):
            self._try(self.makers[0][1])  # the one that creates tensors
        while len(self.steps) < length:
            self._try(self.random.choices([maker for _, maker in self.makers], weights)[0])
        for name in self.reference.tensors():
            self._append(Step(f"check({name})", inputs=(name,)))
        return self.steps

    def _try(self, maker: Maker) -> None:
        step = maker(self)
        if step is None:
            return
        outcome = self.reference.step(step)
        if outcome.error:
            # Another device may support what the CPU lacks.
            lacks = outcome.error == "NotImplementedError" or "not implemented" in outcome.message
            if lacks or self.random.random() > 0.2:
                return
        self.steps.append(step)
        self._delete_useless()

    def _append(self, step: Step) -> None:
        self.reference.step(step)
        self.steps.append(step)

    def _delete_useless(self) -> None:
        """Deletes tensors that are too large or too inexact, and the oldest if there are too many."""
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
        """A tensor of the same shape, in most cases."""
        shape = self.tensor(name).shape
        same = self.pick(lambda tensor: tensor.shape == shape, exact)
        other = self.pick(exact=exact)
        return same if same is not None and self.random.random() < 0.7 else other or name

    def tensor(self, name: str) -> torch.Tensor:
        value = self.reference.variables[name]
        assert isinstance(value, torch.Tensor)
        return value

    def writable(self, wanted: Callable[[torch.Tensor], bool] = lambda _: True) -> str | None:
        """A tensor without overlapping elements, or an expanded one, to which writes are refused.

        Writes to overlapping windows are undefined, and PyTorch does not detect them.
        """

        def apart(tensor: torch.Tensor) -> bool:
            if 0 in tensor.stride() or tensor.numel() == 0:
                return True
            storage = torch.arange(tensor.untyped_storage().nbytes() // tensor.itemsize)
            places = storage.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
            return places.unique().numel() == tensor.numel()

        return self.pick(lambda tensor: wanted(tensor) and apart(tensor))

    def shares_storage(self, one: str, other: str) -> bool:
        return self.tensor(one).untyped_storage()._cdata == self.tensor(other).untyped_storage()._cdata

    def overlaps_unseen(self, written: str, read: str) -> bool:
        """Whether a write may change what it reads without an error from PyTorch, which checks dense tensors."""
        one, other = self.tensor(written), self.tensor(read)
        layouts = [(each.shape, each.stride(), each.storage_offset()) for each in (one, other)]

        def is_dense(tensor: torch.Tensor) -> bool:
            reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
            return reach + 1 == tensor.numel()

        dense = is_dense(one) and is_dense(other)
        return self.shares_storage(written, read) and layouts[0] != layouts[1] and not dense

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
        """An index tensor without repetitions, if there is room for that."""
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
