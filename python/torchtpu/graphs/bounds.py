"""Bounded sizes: how large a graph's symbolic sizes can get, so that one program serves all values up to there."""

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

# A size as the core takes it: what it can be at most, and the numbers of the sizes that it is a multiple of.
SizeOf = tuple[int, list[int]]
# Beyond this a bound says nothing about the sizes that come.
MAX_BOUND = 1 << 40


class UnboundedError(NotImplementedError):
    """Why a graph needs a program for each set of sizes."""


class Bounds:
    """The sizes of a graph, with what they can be at most, as they become inputs of its program. Those in `fixed` do
    not change: they are part of it."""

    def __init__(self, capacities: Mapping[Any, int], fixed: Mapping[Any, int]) -> None:
        self.fixed = {symbol: sympy.Integer(size) for symbol, size in fixed.items()}
        self._ranges = {symbol: ValueRanges(0, capacity) for symbol, capacity in capacities.items()}
        # Symbols, and expressions that are no products of such.
        self.sizes: list[Any] = []
        self.numbers: list[Any] = []
        self._complete = False

    def known(self, expression: Any) -> Any:
        """An expression of the sizes that change."""
        return sympy.sympify(expression).xreplace(self.fixed)

    def capacity(self, expression: Any) -> int:
        """The largest value of an expression of the symbols."""
        upper = bound_sympy(self.known(expression), self._ranges).upper
        if not isinstance(upper, int | sympy.Integer) or upper is int_oo or upper > MAX_BOUND:
            raise UnboundedError(f"{expression} has no bound")
        return int(upper)

    def size_of(self, expression: Any) -> SizeOf:
        """An expression as a multiple of sizes; each of them becomes an input of the program."""
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
        """The place of what follows from the sizes, and is taken as a number, among such."""
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
        """No more sizes and numbers come; returns how many there are."""
        self._complete = True
        return len(self)

    def values(self, known: Mapping[Any, int]) -> list[int | float]:
        """What the sizes and then the numbers are this time."""
        numbers = [number.xreplace(known) for number in self.numbers]
        exact = [int(number) if sympy.sympify(number).is_Integer else float(number) for number in numbers]
        return [*(int(size.xreplace(known)) for size in self.sizes), *exact]


class Growth:
    """How large the symbols of a model may get: what the user said, else powers of two as sizes come."""

    def __init__(self, given: Mapping[Any, int]) -> None:
        self._given = given
        self._reached: dict[Any, int] = {}

    def reach(self, symbols: Iterable[Any], sizes: Iterable[int]) -> tuple[int, ...]:
        """Capacities of which each is at least as large as the size."""
        for symbol, size in zip(symbols, sizes, strict=True):
            if size < 0:
                raise UnboundedError(f"{symbol} is negative")
            if size > self._reached.get(symbol, -1):
                given = self._given.get(symbol, 0)
                self._reached[symbol] = given if given >= size else 1 << max(size - 1, 1).bit_length()
        return tuple(self._reached[symbol] for symbol in symbols)


_growths: weakref.WeakKeyDictionary[Any, Growth] = weakref.WeakKeyDictionary()


def growth_of(examples: Iterable[Any]) -> Growth:
    """The growth that the graphs of a model share, forward and backward; `examples` are what a graph takes."""
    sizes = (each for value in examples for each in (value.shape if isinstance(value, torch.Tensor) else [value]))
    environment = next(each.node.shape_env for each in sizes if isinstance(each, torch.SymInt))
    if environment not in _growths:
        _growths[environment] = Growth(_given_bounds(environment))
    return _growths[environment]


def _given_bounds(environment: Any) -> dict[Any, int]:
    """The largest values that `mark_dynamic` gave, by symbol."""
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
    """Says why a graph gets a program for each set of sizes, in the log and in Dynamo's counters."""
    from torch._dynamo.utils import counters

    counters["tpu_unbounded"][str(reason)] += 1
    log.warning("%s: a program for each set of sizes, because %s", name, str(reason))
