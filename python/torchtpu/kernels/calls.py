"""Kernels and their calls. A call has a function, fixed values, and the places of its tensors.

    Kernel      a function for JAX's arrays, under a name
    Call        a kernel with a layout of its arguments; or what is derived from another call: its gradients, a batch
    Spec        the dtype and the shape of a tensor

A call has a name, which an operator takes as a string: it is the same in each process for the same function.
Nothing here needs JAX until a call is traced.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchtpu.kernels.fingerprint import fingerprint, hash_of

# A place of a layout: ("t", number of the tensor), ("s", type, value), ("n",) for None, ("l"|"u", places) for a list or
# a tuple, ("d", ((key, place), …)).
Place = tuple[Any, ...]


class Spec(NamedTuple):
    """The dtype and the shape of a tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{str(self.dtype).removeprefix('torch.')}{list(self.shape)}"


class Layout(NamedTuple):
    """How tensors and fixed values make the arguments of a function."""

    args: tuple[Place, ...]
    kwargs: tuple[tuple[str, Place], ...] = ()

    def fill(self, tensors: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments, with these as the tensors."""
        args = [_fill(place, tensors) for place in self.args]
        return args, {name: _fill(place, tensors) for name, place in self.kwargs}


def fixed(value: Any) -> Place:
    """The place of a value that is part of the program."""
    if value is None:
        return ("n",)
    if isinstance(value, list | tuple):
        return ("l" if isinstance(value, list) else "u", tuple(fixed(each) for each in value))
    if isinstance(value, dict):
        return ("d", tuple((key, fixed(each)) for key, each in value.items()))
    return ("s", type(value), value)


def _fill(place: Place, tensors: Sequence[Any]) -> Any:
    kind = place[0]
    if kind == "t":
        return tensors[place[1]]
    if kind == "s":
        return place[2]
    if kind == "n":
        return None
    if kind == "d":
        return {key: _fill(each, tensors) for key, each in place[1]}
    filled = [_fill(each, tensors) for each in place[1]]
    return filled if kind == "l" else tuple(filled)


class Kernel:
    """A function for JAX's arrays."""

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        reference: Callable[..., Any] | None = None,
        version: str | None = None,
        padding: str | None = None,
    ) -> None:
        if padding not in (None, "zeros"):
            raise ValueError(f'{name}: padding is None or "zeros", not {padding!r}')
        self.function = function
        self.reference = reference
        # "zeros": sizes that change may be padded with zeros.
        self.padding = padding
        code = [version] if version is not None else [fingerprint(each) for each in (function, reference) if each]
        # A hash of all that its programs depend on. None if another process cannot use them.
        options = [] if padding is None else [padding]
        self.identity = None if None in code else hash_of(name, *code, *options)
        self.name = name
        self._calls: dict[Layout, Call] = {}

    def call(self, layout: Layout) -> Call:
        """The call with this layout."""
        found = self._calls.get(layout)
        if found is None:
            found = self._calls[layout] = _known(Call(self, layout))
        return found


_numbers = itertools.count()
_calls: dict[str, Call] = {}


class Call:
    """A function of tensors alone."""

    def __init__(
        self, kernel: Kernel, layout: Layout | None = None, of: Call | None = None, change: tuple[Any, ...] = ()
    ) -> None:
        self.kernel = kernel
        self.layout = layout
        self.of = of
        # How the call is derived from the other one: see `torchtpu.kernels.derived`.
        self.change = change
        self.identity = self._identity()
        unique = self.identity or f"{next(_numbers)} of this process"
        self.name = f"{kernel.name}#{hash_of(unique)}"
        # How the results are nested; known once the call has been traced or its text has been read.
        self.structure: Any = None
        # The program, if another process has made it.
        self.text: Any = None
        self._derived: dict[tuple[Any, ...], Call] = {}

    def _identity(self) -> str | None:
        if self.of is not None:
            return None if self.of.identity is None else hash_of(self.of.identity, _plain(self.change))
        layout = fingerprint_of(self.layout)
        return None if self.kernel.identity is None or layout is None else hash_of(self.kernel.identity, layout)

    def derive(self, *change: Any) -> Call:
        """The call that follows from this one by a change."""
        found = self._derived.get(change)
        if found is None:
            found = self._derived[change] = _known(Call(self.kernel, of=self, change=change))
        return found

    def function(self) -> Callable[..., Any]:
        """The function of JAX's arrays, in the order of the tensors."""
        if self.of is not None:
            from torchtpu.kernels.derived import derived

            return derived(self.of, self.change)
        return self.bound(self.kernel.function)

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Another function of the same arguments, as a function of the tensors."""
        assert self.layout is not None
        layout = self.layout

        def call(*arrays: Any) -> Any:
            args, kwargs = layout.fill(arrays)
            return function(*args, **kwargs)

        call.__name__ = getattr(function, "__name__", "kernel")
        return call

    def __str__(self) -> str:
        return self.kernel.name if self.of is None else f"{self.change[0]} of {self.of}"


def _known(call: Call) -> Call:
    """The call of that name. Another function may have the same code and so the same call."""
    return _calls.setdefault(call.name, call)


def module_call(name: str, text: Any) -> Call:
    """The call of a module that another process has made: a [`torchtpu.kernels.store.Text`]."""
    call = Call(Kernel(name, _no_function, version=text.entry), Layout(()))
    call.text = text
    call.structure = text.structure
    return _known(call)


def _no_function(*_: Any) -> Any:
    raise RuntimeError("a module that was made elsewhere has no function of JAX's")


def fingerprint_of(layout: Any) -> str | None:
    """A hash of a layout that holds in any process."""
    return fingerprint(layout)


def _plain(value: Any) -> Any:
    return [_plain(each) for each in value] if isinstance(value, tuple | list) else str(value)


def call_named(name: str) -> Call:
    """The call that an operator was given.

    Raises RuntimeError where this process has not made that call.
    """
    found = _calls.get(name)
    if found is None:
        kernel = name.partition("#")[0]
        raise RuntimeError(
            f"the kernel {kernel} is called as it was in another process: call its function here first, so that the "
            f"call is known"
        )
    return found
