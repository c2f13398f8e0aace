"""What there is to run: operators, modules and optimizers × dtypes × directions × modes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

import torch

from tests.conformance.places import Trial

EAGER_MODES = ("strict", "fused", "debug")
MODES = (*EAGER_MODES, "compile")
DIRECTIONS = (
    "forward",
    "backward",
    "gradgrad",
    "strided",
    "out",
    "inplace",
    "sparse",
    "errors",
    "refused",
    "step",
    "gradcheck",
    "gradgradcheck",
)
# They judge formulas.
FINITE_DIFFERENCES = ("gradcheck", "gradgradcheck")
# These, and which calls are lowered at all, are the same in each mode.
ONE_MODE_DIRECTIONS = ("refused", *FINITE_DIFFERENCES)
# What torch.compile promises: AOTAutograd has no second derivatives, and PyTorch's errors come from Dynamo there.
COMPILED_DIRECTIONS = ("forward", "backward", "strided", "inplace", "step")
# The first four are those that the project's goal is stated for.
DTYPES = (
    "float32",
    "int64",
    "bool",
    "bfloat16",
    "uint8",
    "int8",
    "int16",
    "int32",
    "float16",
    "float64",
    "complex64",
)
# Those that a TPU's compiler is asked about.
COMPILED_DTYPES = (*DTYPES, "complex128")


class Case(NamedTuple):
    subject: str
    dtype: str
    direction: str
    mode: str

    def __str__(self) -> str:
        return "/".join(self)

    @classmethod
    def parse(cls, name: str) -> Case:
        return cls(*name.rsplit("/", 3))


class Subject(Protocol):
    """An operator, a module or an optimizer."""

    name: str

    def directions(self, dtype: torch.dtype) -> tuple[str, ...]:
        """The directions in which PyTorch says that it runs on the CPU, or on CUDA, with that dtype."""

    def is_for_cuda_only(self, dtype: torch.dtype) -> bool:
        """Whether PyTorch says that it runs on CUDA with that dtype, and not on the CPU."""

    def trials(self, dtype: torch.dtype, direction: str, count: int, seed: int) -> list[Trial]:
        """Up to `count` programs."""

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float] | None:
        """(absolute, relative), where PyTorch's own tests need more than usual."""


@functools.cache
def subjects() -> dict[str, Subject]:
    """All subjects by name. Loading them takes seconds."""
    from tests.conformance.jagged import jagged_operators
    from tests.conformance.modules import modules, optimizers
    from tests.conformance.operators import operators

    return {subject.name: subject for subject in (*operators(), *jagged_operators(), *modules(), *optimizers())}


def cases(
    names: tuple[str, ...] = ("*",),
    dtypes: tuple[str, ...] = DTYPES,
    directions: tuple[str, ...] = DIRECTIONS,
    modes: tuple[str, ...] = MODES,
) -> Iterator[Case]:
    """The cases of a selection, those of a subject side by side. Names may be patterns ("linalg.*")."""
    for name, subject in subjects().items():
        if any(fnmatchcase(name, pattern) for pattern in names):
            for dtype in dtypes:
                possible = subject.directions(getattr(torch, dtype))
                for direction in directions:
                    if direction in possible:
                        chosen = modes[:1] if direction in ONE_MODE_DIRECTIONS else modes
                        yield from (
                            Case(name, dtype, direction, mode)
                            for mode in chosen
                            if mode != "compile" or direction in COMPILED_DIRECTIONS
                        )
