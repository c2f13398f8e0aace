"""The cases: operators, modules and optimizers × dtypes × directions × modes."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple, Protocol

import torch

from tests.conformance import padded
from tests.conformance.places import Trial

EAGER_MODES = ("strict", "fused", "debug")
MODES = (*EAGER_MODES, "compile", padded.MODE)
DIRECTIONS = (
    "forward",
    "backward",
    "gradgrad",
    "strided",
    "out",
    "inplace",
    "sparse",
    "errors",
    "mixed",
    "refused",
    "step",
    "gradcheck",
    "gradgradcheck",
)
# These test formulas.
FINITE_DIFFERENCES = ("gradcheck", "gradgradcheck")
# These, and whether calls are lowered at all, are the same in each mode.
ONE_MODE_DIRECTIONS = ("refused", *FINITE_DIFFERENCES)
# The directions of torch.compile: AOTAutograd has no second derivatives, and Dynamo raises PyTorch's errors there.
COMPILED_DIRECTIONS = ("forward", "backward", "strided", "inplace", "step")
# The project's goal is stated for the first four.
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
# The dtypes for a TPU's compiler.
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
        """The directions that PyTorch lists for that dtype on the CPU, or on CUDA."""

    def is_for_cuda_only(self, dtype: torch.dtype) -> bool:
        """Whether PyTorch lists that dtype for CUDA but not for the CPU."""

    def trials(self, dtype: torch.dtype, direction: str, count: int, seed: int) -> list[Trial]:
        """Up to `count` programs."""

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float] | None:
        """(absolute, relative), if PyTorch's own tests need more than usual."""


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
    """The selected cases, grouped by subject. Names may be patterns ("linalg.*")."""
    for name, subject in subjects().items():
        if any(fnmatchcase(name, pattern) for pattern in names):
            for dtype in dtypes:
                possible = subject.directions(getattr(torch, dtype))
                for direction in directions:
                    if direction in possible:
                        chosen = modes[:1] if direction in ONE_MODE_DIRECTIONS else modes
                        yield from (
                            Case(name, dtype, direction, mode) for mode in chosen if _is_judged(dtype, direction, mode)
                        )


def _is_judged(dtype: str, direction: str, mode: str) -> bool:
    if mode == padded.MODE:
        return dtype in padded.DTYPES and direction in padded.DIRECTIONS
    return mode != "compile" or direction in COMPILED_DIRECTIONS


def is_for_cuda_only(case: Case) -> bool:
    """Whether PyTorch lists the case's dtype for CUDA and not for the CPU."""
    return subjects()[case.subject].is_for_cuda_only(getattr(torch, case.dtype))
