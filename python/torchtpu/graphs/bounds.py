"""Bounded sizes: the capacities of a graph's symbolic sizes, so that one program covers all values up to there."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import sympy
import torch
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

log = logging.getLogger(__name__)

# A size in the form that the core takes: its capacity, and the numbers of the sizes that it is a multiple of.
SizeOf = tuple[int, list[int]]
# A larger bound does not restrict the sizes that occur.
MAX_BOUND = 1 << 40


class UnboundedError(NotImplementedError):
    """Why a graph needs a program for each set of sizes."""


class DependsOnSizesError(UnboundedError):
    """An operator of the graph is decomposed differently for other sizes. PyTorch may have cached results of these."""


class Bounds:
    """The sizes of a graph and their capacities. The sizes become inputs of the graph's program. Sizes in `fixed`
    do not change; they are constants of the program."""

    def __init__(self, capacities: Mapping[Any, int], fixed: Mapping[Any, int]) -> None:
        self.fixed = {symbol: sympy.Integer(size) for symbol, size in fixed.items()}
        self._ranges = {symbol: ValueRanges(0, capacity) for symbol, capacity in capacities.items()}
        # Symbols, and expressions that are not products of symbols.
        self.sizes: list[Any] = []
        self.numbers: list[Any] = []
        self._complete = False

    def known(self, expression: Any) -> Any:
        """An expression of the changing sizes."""
        return sympy.sympify(expression).xreplace(self.fixed)

    def capacity(self, expression: Any) -> int:
        """The largest value of an expression of the symbols."""
        upper = bound_sympy(self.known(expression), self._ranges).upper
        if not isinstance(upper, int | sympy.Integer) or upper is int_oo or upper > MAX_BOUND:
            raise UnboundedError(f"{expression} has no bound")
        return int(upper)

    def size_of(self, expression: Any) -> SizeOf:
        """An expression as a multiple of sizes. Each of these sizes becomes an input of the program."""
        expression = self.known(expression)
        known, sizes = 1, []
        for factor in sympy.Mul.make_args(expression):
            if factor.is_Integer:
                known *= int(factor)
            elif factor.is_Pow and factor.exp.is_Integer and factor.exp > 0:
                sizes += [self._number_size(factor.base)] * int(factor.exp)
            else:
                sizes.append(self._number_size(factor))
        if known < 0:
            return self.capacity(expression), [self._number_size(expression)]
        capacity = known
        for size in sizes:
            capacity *= self.capacity(self.sizes[size])
        return capacity, sorted(sizes)

    def _number_size(self, expression: Any) -> int:
        return self._place(self.sizes, expression)

    def number(self, expression: Any) -> int:
        """The index of a number that follows from the sizes and is an input of the program."""
        return self._place(self.numbers, self.known(expression))

    def _place(self, listed: list[Any], expression: Any) -> int:
        if expression not in listed:
            if self._complete:
                raise UnboundedError(f"{expression} comes up late")
            listed.append(expression)
        return listed.index(expression)

    def __len__(self) -> int:
        return len(self.sizes) + len(self.numbers)

    def complete(self) -> int:
        """Ends the collection of sizes and numbers. Returns how many there are."""
        self._complete = True
        return len(self)

    def values(self, known: Mapping[Any, int]) -> list[int | float]:
        """The values of the sizes and then of the numbers for this call."""
        numbers = [number.xreplace(known) for number in self.numbers]
        exact = [int(number) if sympy.sympify(number).is_Integer else float(number) for number in numbers]
        return [*(int(size.xreplace(known)) for size in self.sizes), *exact]


class Growth:
    """The capacities of a model's symbols: the user's bounds, else powers of two, which grow with the sizes that
    occur."""

    def __init__(self, given: Mapping[Any, int]) -> None:
        self._given = given
        self._reached: dict[Any, int] = {}

    def reach(self, symbols: Iterable[Any], sizes: Iterable[int]) -> tuple[int, ...]:
        """Capacities that are at least as large as the sizes."""
        for symbol, size in zip(symbols, sizes, strict=True):
            if size < 0:
                raise UnboundedError(f"{symbol} is negative")
            if size > self._reached.get(symbol, -1):
                given = self._given.get(symbol, 0)
                self._reached[symbol] = given if given >= size else 1 << max(size - 1, 1).bit_length()
        return tuple(self._reached[symbol] for symbol in symbols)


_growths: weakref.WeakKeyDictionary[Any, Growth] = weakref.WeakKeyDictionary()


def growth_of(examples: Iterable[Any]) -> Growth:
    """The growth that a model's forward and backward graphs share. `examples` are the inputs of a graph."""
    sizes = (each for value in examples for each in (value.shape if isinstance(value, torch.Tensor) else [value]))
    environment = next(each.node.shape_env for each in sizes if isinstance(each, torch.SymInt))
    if environment not in _growths:
        _growths[environment] = Growth(_given_bounds(environment))
    return _growths[environment]


def _given_bounds(environment: Any) -> dict[Any, int]:
    """The largest values given by `mark_dynamic`, by symbol."""
    from torch.fx.experimental.symbolic_shapes import StrictMinMaxConstraint

    given: dict[Any, int] = {}
    for tracked in getattr(environment, "tracked_fakes", None) or ():
        constraints = getattr(tracked.symbolic_context, "constraint_sizes", None) or ()
        if not isinstance(tracked.fake, torch.Tensor):
            continue
        for size, constraint in zip(tracked.fake.shape, constraints, strict=False):
            if not isinstance(size, torch.SymInt) or not isinstance(constraint, StrictMinMaxConstraint):
                continue
            upper = constraint.vr.upper
            if upper is not int_oo and isinstance(upper, int | sympy.Integer) and upper <= MAX_BOUND:
                given[size.node.expr] = int(upper)
    return given


def explain(name: str, reason: Exception) -> None:
    """Records in the log and in Dynamo's counters why a graph gets a program for each set of sizes."""
    from torch._dynamo.utils import counters

    counters["tpu_unbounded"][str(reason)] += 1
    log.warning("%s: a program for each set of sizes, because %s", name, str(reason))
