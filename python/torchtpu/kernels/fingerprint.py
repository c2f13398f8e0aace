"""What a function computes, as a hash that holds in any process: its code without lines and file names, and the values
that it refers to.

A function of an installed package counts by its name and the package's version. What is not known how to be hashed
makes the fingerprint None: texts of such a function are not kept on disk.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import importlib.metadata
import sys
import sysconfig
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

# Attributes of a class that depend on where it is written.
PLACES = ("__module__", "__doc__", "__firstlineno__")
PLAIN = (int, float, complex, str, bytes, bool, type(None), type(Ellipsis), range)


class _UnknownValueError(Exception):
    """A value whose meaning in another process is not known."""


def fingerprint(function: Callable[..., Any]) -> str | None:
    """A hash of what a function computes, or None if it depends on a value that cannot be hashed."""
    try:
        return hash_of(_Walk().value(function))
    except Exception:  # reading the attributes of a value may raise anything
        return None


def hash_of(*parts: Any) -> str:
    """A short hash of values that print alike in any process."""
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).hexdigest()


class _Walk:
    """Describes values by plain ones. A value that was described before is described by its number."""

    def __init__(self) -> None:
        self._met: dict[int, int] = {}
        self._kept: list[Any] = []

    def value(self, value: Any) -> Any:
        if isinstance(value, enum.Enum):
            return ("enum", type(value).__qualname__, value.name)
        if isinstance(value, PLAIN):
            return (type(value).__name__, repr(value))
        if isinstance(value, tuple | list):
            return (type(value).__name__, [self.value(each) for each in value])
        if isinstance(value, set | frozenset):
            return (type(value).__name__, sorted(map(repr, map(self.value, value))))
        if isinstance(value, Mapping):
            return ("dict", [(self.value(key), self.value(each)) for key, each in value.items()])
        if isinstance(value, types.ModuleType):
            return ("module", _module(value))
        if id(value) in self._met:
            return ("met", self._met[id(value)])
        self._met[id(value)] = len(self._met)
        self._kept.append(value)
        return self._object(value)

    def _object(self, value: Any) -> Any:
        package = _package_of(value)
        name = getattr(value, "__qualname__", None)
        if package is not None and isinstance(name, str) and _is_named(value, name):
            return ("of", package, value.__module__, name)
        if isinstance(value, functools.partial):
            return ("partial", self.value(value.func), self.value(value.args), self.value(value.keywords))
        if isinstance(value, types.MethodType):
            return ("method", self.value(value.__func__), self.value(value.__self__))
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, type):
            bases = [self.value(each) for each in value.__bases__ if each is not object]
            return ("class", value.__qualname__, bases, [self.value(each) for each in _members(value)])
        mro = type(value).__mro__[:-1]
        if mro and all(_package(cls.__module__) is None for cls in mro):  # an object of the user's own class
            return ("object", self.value(type(value)), [self.value(each) for each in _state(value)])
        if dataclasses.is_dataclass(value):
            fields = [(each.name, self.value(getattr(value, each.name))) for each in dataclasses.fields(value)]
            return ("data", self.value(type(value)), fields)
        if hasattr(value, "__array__") and hasattr(value, "dtype") and hasattr(value, "shape"):
            import numpy

            array = numpy.asarray(value)
            return ("array", str(array.dtype), array.shape, hashlib.blake2b(array.tobytes()).hexdigest())
        if hasattr(value, "__wrapped__") and callable(value):  # jax.jit, jax.custom_vjp, functools.wraps
            state = [each for each in _state(value) if each is not value.__wrapped__ and callable(each)]
            return ("wrapped", type(value).__qualname__, self.value(value.__wrapped__), list(map(self.value, state)))
        state = _state(value) if package is not None else []
        text = repr(value)
        if state or " at 0x" not in text:
            shown = text if " at 0x" not in text else ""
            return ("object", package, type(value).__qualname__, shown, [self.value(each) for each in state])
        raise _UnknownValueError(repr(type(value)))

    def _function(self, function: types.FunctionType) -> Any:
        cells = [each.cell_contents for each in function.__closure__ or () if _is_filled(each)]
        given = [function.__defaults__, function.__kwdefaults__, cells]
        custom = [each for each in vars(function).values() if callable(each)]  # what jax.custom_vjp and its like keep
        names = [
            (name, self.value(function.__globals__[name]))
            for name in sorted(_names(function.__code__))
            if name in function.__globals__
        ]
        return ("function", _code(function.__code__), self.value(given), names, [self.value(each) for each in custom])


def _code(code: types.CodeType) -> Any:
    constants = [_code(each) if isinstance(each, types.CodeType) else _constant(each) for each in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    counts = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
    return (sys.version_info[:2], code.co_name, code.co_code.hex(), constants, names, counts)


def _constant(value: Any) -> Any:
    # The order in which a set of constants prints changes from process to process.
    return sorted(map(repr, value)) if isinstance(value, frozenset) else (type(value).__name__, repr(value))


def _names(code: types.CodeType) -> set[str]:
    """The names that a function and its inner functions may look up in their module."""
    inner = [_names(each) for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*inner)


def _members(cls: type) -> Iterator[Any]:
    for name, value in sorted(vars(cls).items()):
        if isinstance(value, staticmethod | classmethod):
            yield name, value.__func__
        elif isinstance(value, (types.FunctionType, *PLAIN)) and name not in (
            "__module__",
            "__doc__",
            "__firstlineno__",
        ):
            yield name, value


def _state(value: Any) -> list[Any]:
    names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
    slots = [getattr(value, name, None) for name in names if isinstance(name, str) and not name.startswith("__")]
    kept = [each for name, each in sorted(getattr(value, "__dict__", {}).items()) if not name.startswith("__")]
    return slots + kept


def _is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018 (asks whether there are any)
    except ValueError:
        return False
    return True


def _module(module: types.ModuleType) -> Any:
    """A module by its name and version; one of the user's by its code."""
    package = _package(module.__name__)
    if package is not None:
        return (package, module.__name__)
    return _source(getattr(module, "__file__", None), module.__name__)


@functools.cache
def _source(path: str | None, name: str) -> Any:
    import ast

    if path is None or not path.endswith(".py"):
        raise _UnknownValueError(name)
    try:
        with open(path, "rb") as file:
            return hash_of(ast.dump(ast.parse(file.read())))
    except (OSError, SyntaxError, ValueError) as error:
        raise _UnknownValueError(name) from error


def _package_of(value: Any) -> Any:
    """The package that a value is of, with its version; None for the user's own code."""
    module = getattr(value, "__module__", None)
    if not isinstance(module, str):
        module = type(value).__module__
    return _package(module)


def _is_named(value: Any, name: str) -> bool:
    """Whether the value is the one that its module has under the name of the value."""
    found: Any = sys.modules.get(value.__module__)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


@functools.cache
def _package(module: str) -> Any:
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names and top != "__main__":
        return ("python", sys.version_info[:2])
    found = sys.modules.get(top)
    path = getattr(found, "__file__", None) or ""
    folders = ("site-packages", "dist-packages")
    purelib = sysconfig.get_paths()["purelib"]
    if not (path.startswith(purelib) or any(f"/{folder}/" in path for folder in folders)):
        version = version_of(top) if top in ("jax", "jaxlib", "numpy", "torch", "torchtpu") else None
        return None if version is None else (top, version)
    return (top, version_of(top))


@functools.cache
def version_of(package: str) -> str | None:
    """The version of an installed package. This does not import the package."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
