"""Tensor programs, as lists of lines of Python: run on two devices, compared, and shrunk if the devices disagree.

Floats are compared within a bound that is tracked for each storage. Small multiples of a power of two stay exact
under most operators. An operator whose result is not continuous (a comparison, a rounding, a mask) only gets exact
operands.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torchtpu import _C

INFINITE = math.inf

# The effect of an operator on the error of its operands.
MOVES = "moves"  # copies values, computes nothing
EXACT = "exact"  # sums, differences, selections: exact on small dyadic numbers
PRODUCT = "product"  # like EXACT, and the error grows with the other operand
SMOOTH = "smooth"  # rounds, and does not magnify an error
LEAPS = "leaps"  # a small error in an operand can change the result completely


@dataclass
class Step:
    """One line, its effect on errors, the variable that it creates or writes, and those that it reads."""

    text: str
    kind: str = MOVES
    target: str = ""
    inputs: tuple[str, ...] = ()


@dataclass
class Outcome:
    """The outcome of a step: the class of its exception, or the value that it checked and its tolerance."""

    error: str = ""
    message: str = ""
    value: Any = None
    tolerance: float = 0.0


def precision(dtype: torch.dtype) -> float:
    return torch.finfo(dtype).eps if dtype.is_floating_point else 0.0


def is_dyadic(tensor: torch.Tensor, kind: str) -> bool:
    """Whether all values are small multiples of a power of two, which products and sums of a few keep exact."""
    if not tensor.dtype.is_floating_point:
        return True
    coarse = tensor.dtype in (torch.bfloat16, torch.float16)
    if coarse and kind == PRODUCT:  # the product of two exact numbers may be rounded to one that looks exact
        return False
    limit, parts = (16, 4) if coarse else (64, 16)
    values = tensor.double()
    return bool((values.abs() <= limit).all()) and bool(((values * parts).frac() == 0).all())


def largest(tensor: torch.Tensor) -> float:
    if tensor.numel() == 0 or tensor.dtype == torch.bool:
        return 1.0
    return max(1.0, float(tensor.double().abs().max()))


class Run:
    """Executes steps on one device."""

    def __init__(self, device: str) -> None:
        self.variables: dict[str, Any] = {
            "torch": torch,
            "device": torch.device(device),
            "check": self._check,
            "mode": self._mode,
            "sizes": self._sizes,
        }
        self.is_reference = device == "cpu"
        self._checked: Any = None

    def _check(self, value: Any) -> None:
        self._checked = value

    def _mode(self, name: str) -> None:
        if not self.is_reference:
            torch.tpu.set_eager_mode(name)

    def _sizes(self, setting: str) -> None:
        if not self.is_reference:
            _C.set_sizes(setting)

    def step(self, step: Step) -> Outcome:
        self._checked = None
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                # A file for each line: the device remembers what each line of a program uploads.
                exec(compile(step.text, f"<{step.text}>", "exec"), self.variables)
                if isinstance(self._checked, torch.Tensor):
                    checked = self._checked
                    # The strides of empty tensors and of dimensions of size 1 are arbitrary.
                    strides = tuple(
                        stride if size > 1 else 1 for size, stride in zip(checked.shape, checked.stride(), strict=True)
                    )
                    strides = strides if checked.numel() else ()
                    description = (checked.dtype, tuple(checked.shape), checked.storage_offset(), strides)
                    return Outcome(value=(description, checked.detach().cpu().clone()))
        except Exception as error:
            return Outcome(error=type(error).__name__, message=str(error))
        return Outcome(value=self._checked)


class Reference(Run):
    """Executes steps on the CPU and bounds the error of another device."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.errors: dict[int, float] = {}  # by storage

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: value for name, value in self.variables.items() if isinstance(value, torch.Tensor)}

    def error_of(self, name: str) -> float:
        value = self.variables.get(name)
        return self.errors.get(_storage(value), 0.0) if isinstance(value, torch.Tensor) else 0.0

    def step(self, step: Step) -> Outcome:
        operands = [self.variables[name] for name in step.inputs if isinstance(self.variables.get(name), torch.Tensor)]
        before = [(self.errors.get(_storage(tensor), 0.0), largest(tensor), tensor) for tensor in operands]
        outcome = super().step(step)
        if not outcome.error:
            target = self.variables.get(step.target)
            if isinstance(target, torch.Tensor):
                self._note(step, target, before)
            elif any(error for error, _, _ in before) and step.kind == LEAPS:
                outcome.tolerance = INFINITE
            if step.text.startswith("check("):
                outcome.tolerance = max((self.error_of(name) for name in step.inputs), default=0.0)
        live = {_storage(tensor) for tensor in self.tensors().values()}
        self.errors = {storage: error for storage, error in self.errors.items() if storage in live}
        return outcome

    def _note(self, step: Step, result: torch.Tensor, operands: list[tuple[float, float, torch.Tensor]]) -> None:
        storage = _storage(result)
        error = max(self._error(step, result, operands), self.errors.get(storage, 0.0))
        if result.dtype.is_floating_point and not bool(result.double().isfinite().all()):
            error = INFINITE
        self.errors[storage] = error

    def _error(self, step: Step, result: torch.Tensor, operands: list[tuple[float, float, torch.Tensor]]) -> float:
        error = sum(error for error, _, _ in operands)
        if step.kind == MOVES:
            return error
        if step.kind == LEAPS or not result.dtype.is_floating_point:
            return INFINITE if error else 0.0
        if step.kind in (EXACT, PRODUCT) and error == 0 and is_dyadic(result, step.kind):
            return 0.0
        terms = max([tensor.numel() for _, _, tensor in operands] + [1])
        bound = largest(result)
        if step.kind == PRODUCT:
            factor = max((size for _, size, _ in operands), default=1.0)
            error *= factor
            bound = max(bound, factor * factor)
        bound = max([bound] + [size for _, size, _ in operands])
        rounding = max([precision(result.dtype)] + [precision(tensor.dtype) for _, _, tensor in operands])
        return terms * error + 4 * terms * rounding * bound


def _storage(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage()._cdata


def difference(expected: Outcome, actual: Outcome) -> str:
    """The difference of the actual outcome, or nothing."""
    if expected.error != actual.error:
        wanted = f"{expected.error}: {expected.message}" if expected.error else "no error"
        got = f"{actual.error}: {actual.message}" if actual.error else "no error"
        return f"expected {wanted}\n     got {got}"
    if expected.tolerance == INFINITE or expected.value is None:
        return ""
    if not isinstance(expected.value, tuple):
        return "" if expected.value == actual.value else f"expected {expected.value}\n     got {actual.value}"
    (description, wanted), (actual_description, got) = expected.value, actual.value
    if description != actual_description:
        return f"expected (dtype, sizes, offset, strides) {description}\n     got {actual_description}"
    if not wanted.dtype.is_floating_point:
        agrees = torch.equal(wanted, got)
    else:
        agrees = torch.allclose(wanted.double(), got.double(), rtol=0, atol=expected.tolerance, equal_nan=True)
    if agrees:
        return ""
    return f"expected {wanted.tolist()}\n     got {got.tolist()}\n     within {expected.tolerance:.3g}"


def first_difference(steps: list[Step], device: str) -> tuple[int, str] | None:
    """Runs a program on the CPU and on the device. Returns the first step with a difference and the difference, or
    None."""
    reference, run = Reference(), Run(device)
    for index, step in enumerate(steps):
        expected = reference.step(step)
        actual = run.step(step)
        if message := difference(expected, actual):
            return index, message
        if expected.tolerance == INFINITE and step.kind == LEAPS:  # a number read from inexact values: not comparable
            return None
    return None


def shrink(steps: list[Step], device: str, attempts: int = 400) -> list[Step]:
    """A shorter program that still fails: steps are removed, many at a time at first, as long as it fails."""
    found = first_difference(steps, device)
    if found is None:
        return steps
    steps = steps[: found[0] + 1]
    size = max(1, len(steps) // 2)
    while attempts > 0:
        start, dropped = 0, False
        while start < len(steps) and attempts > 0:
            candidate = steps[:start] + steps[start + size :]
            attempts -= 1
            found = first_difference(candidate, device) if candidate else None
            if found is not None and "NameError" not in found[1]:
                steps = candidate[: found[0] + 1]
                dropped = True
            else:
                start += size
        if not dropped:
            if size == 1:
                break
            size = max(1, size // 2)
    reference = Reference()
    return [step for step in steps if reference.step(step).error != "NameError"]


PREAMBLE = """\
import torch

def check(value):
    print(value.detach().cpu() if isinstance(value, torch.Tensor) else value)

def mode(name):
    torch.tpu.set_eager_mode(name)

def sizes(setting):
    from torchtpu import _C

    _C.set_sizes(setting)

"""


def as_python(steps: list[Step], device: str) -> str:
    """The program as a script that prints the values that it checks, on the CPU and on the device."""
    reference = Reference()
    body: list[str] = []
    for step in steps:
        error = reference.step(step).error
        if error:
            body += ["try:", f"    {step.text}", "except Exception as error:", "    print(type(error), error)"]
        else:
            body.append(step.text)
    lines = "\n".join(f"    {line}" for line in body)
    return (
        f'{PREAMBLE}def program(device):\n{lines}\n\nprogram(torch.device("cpu"))\nprogram(torch.device("{device}"))\n'
    )
