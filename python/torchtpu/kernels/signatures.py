"""Converts a function's annotations to an operator's schema, and the operator's arguments to the function's.

Tensors (`jax.Array`, `torch.Tensor`, optional ones, lists and tuples of them) are arguments of the operator. All other
parameters are fixed values of the program: numbers, strings, dtypes, devices, enumerations, literals, and sequences.
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from torchtpu.kernels.calls import Layout, Place, fixed

NUMBERS = {int: "int", float: "float", bool: "bool", str: "str"}
# The type in the schema of a value that schemas have no type for: the operator takes a text that identifies it.
TEXT = "str"


class Parameter(NamedTuple):
    """A parameter of the function, in the operator's form."""

    name: str
    # "tensor", "tensors" for a list, "tuple" for a tuple of tensors, "value" for values of a type that schemas have,
    # "text" for other fixed values.
    kind: str
    type: str
    default: Any = inspect.Parameter.empty

    def __str__(self) -> str:
        if self.default is inspect.Parameter.empty:
            return f"{self.type} {self.name}"
        return f"{self.type} {self.name}={_literal(self.default)}"


class Signature:
    """The conversion between an operator's arguments and a function's.

    Raises ValueError for parameters without an annotation, and for unknown annotations.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.parameters: list[Parameter] = []
        # Fixed values of kind "text", by their text.
        self.values_by_text: dict[str, Any] = {}
        signature = inspect.signature(function)
        hints = _hints(function)
        for name, parameter in signature.parameters.items():
            if isinstance(function, functools.partial) and name in function.keywords:
                continue
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                raise ValueError(f"jax_op: parameter {parameter} of {_name(function)} has no fixed number of values")
            if name not in hints:
                raise ValueError(
                    f"jax_op: parameter {name} of {_name(function)} has no annotation; jax.Array and torch.Tensor say "
                    f"that it is a tensor, and all else that it is a fixed value"
                )
            self.parameters.append(self._parameter(function, name, hints[name], parameter.default))
        self.returns = _returns(hints.get("return", inspect.Signature.empty))
        self._keyword_only = {
            name for name, each in signature.parameters.items() if each.kind is inspect.Parameter.KEYWORD_ONLY
        }
        given = [signature.parameters[each.name] for each in self.parameters]
        self._signature = signature.replace(parameters=given)
        # For calls by position: which values are passed to the operator unchanged, and the defaults.
        self._passed = [each.kind in ("tensor", "tensors", "value") for each in self.parameters]
        self._defaults = [each.default for each in given]
        needed = [i for i, each in enumerate(given) if each.default is each.empty]
        self._fewest = len(given) if self._keyword_only else max(needed, default=-1) + 1
        if not any(each.kind in ("tensor", "tensors", "tuple") for each in self.parameters):
            raise ValueError(f"jax_op: {_name(function)} has no parameter that is a tensor")

    def schema(self) -> str:
        """The operator's schema, without its name."""
        return f"({', '.join(map(str, self.parameters))}) -> {self.returns}"

    def values(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[Any]:
        """The operator's arguments for a call of the function.

        Raises TypeError for wrong arguments, as Python does.
        """
        if not kwargs and self._fewest <= len(args) <= len(self._passed):
            given = [*args, *self._defaults[len(args) :]]
            return [
                value if is_passed else self._given(each, value)
                for each, value, is_passed in zip(self.parameters, given, self._passed, strict=True)
            ]
        bound = self._signature.bind(*args, **kwargs)
        bound.apply_defaults()
        return [self._given(each, bound.arguments[each.name]) for each in self.parameters]

    def _given(self, parameter: Parameter, value: Any) -> Any:
        if parameter.kind == "text":
            return text_of_value(self, value)
        if parameter.kind == "tuple" and value is not None:
            return list(value)
        return value

    def parse(self, values: Sequence[Any]) -> tuple[list[Any], Layout]:
        """The tensors in an operator's arguments, and the layout from which the function's arguments are built."""
        tensors: list[Any] = []
        places = [self._place(each, value, tensors) for each, value in zip(self.parameters, values, strict=True)]
        named = [(each.name, place) for each, place in zip(self.parameters, places, strict=True)]
        args = tuple(place for name, place in named if name not in self._keyword_only)
        return tensors, Layout(args, tuple(each for each in named if each[0] in self._keyword_only))

    def _place(self, parameter: Parameter, value: Any, tensors: list[Any]) -> Place:
        def slot(tensor: Any) -> Place:
            if tensor is None:
                return ("n",)
            tensors.append(tensor)
            return ("t", len(tensors) - 1)

        if parameter.kind == "tensor":
            return slot(value)
        if parameter.kind in ("tensors", "tuple"):
            if value is None:
                return ("n",)
            return ("l" if parameter.kind == "tensors" else "u", tuple(slot(each) for each in value))
        return fixed(self.values_by_text[value] if parameter.kind == "text" else value)

    def _parameter(self, function: Any, name: str, hint: Any, default: Any) -> Parameter:
        inner, is_optional = _optional(hint)
        mark = "?" if is_optional else ""
        if _is_tensor(inner):
            return Parameter(name, "tensor", f"Tensor{mark}", default)
        origin, inside = typing.get_origin(inner), typing.get_args(inner)
        if origin in (list, tuple, Sequence, typing.Sequence) and inside:
            elements = [each for each in inside if each is not Ellipsis]
            if all(_is_tensor(each) for each in elements):
                return Parameter(name, "tuple" if origin is tuple else "tensors", f"Tensor[]{mark}", default)
            if any(_is_tensor(_optional(each)[0]) for each in elements):
                raise ValueError(f"jax_op: parameter {name} of {_name(function)} mixes tensors with other values")
        elif inner in NUMBERS:
            return Parameter(name, "value", f"{NUMBERS[inner]}{mark}", default)
        elif inner is torch.dtype:
            return Parameter(name, "value", f"ScalarType{mark}", default)
        if not (origin or isinstance(inner, type)):
            raise ValueError(
                f"jax_op: parameter {name} of {_name(function)} has the annotation {hint}, of no known kind"
            )
        given = default if default is inspect.Parameter.empty else text_of_value(self, default)
        return Parameter(name, "text", TEXT, given)


@torch.compiler.assume_constant_result
def text_of_value(signature: Signature, value: Any) -> str:
    """The text that identifies a fixed value in an operator's arguments."""
    text = f"{type(value).__qualname__}: {value!r}"
    signature.values_by_text.setdefault(text, value)
    return text


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    inner: Any = function
    while isinstance(inner, functools.partial):
        inner = inner.func
    inner = inspect.unwrap(inner)
    try:
        return typing.get_type_hints(inner)
    except NameError as error:
        raise ValueError(f"jax_op: an annotation of {_name(function)} cannot be read: {error}") from error


def _returns(hint: Any) -> str:
    if hint is None or hint is type(None):
        return "()"
    if _is_tensor(hint):
        return "Tensor"
    inside = typing.get_args(hint)
    if typing.get_origin(hint) is tuple and inside and all(_is_tensor(each) for each in inside):
        return f"({', '.join('Tensor' for _ in inside)})" if len(inside) > 1 else "Tensor[]"
    # For lists, optional results and nested results, the operator returns the list of tensors.
    return "Tensor[]"


def _optional(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        inside = [each for each in typing.get_args(hint) if each is not type(None)]
        if len(inside) == 1:
            return inside[0], True
        if all(_is_tensor(each) for each in inside):
            return inside[0], len(inside) < len(typing.get_args(hint))
    return hint, False


def _is_tensor(hint: Any) -> bool:
    module = str(getattr(hint, "__module__", "")).partition(".")[0]
    if module in ("jax", "jaxlib"):
        return getattr(hint, "__name__", "").rpartition(".")[2] in ("Array", "ArrayImpl")
    return isinstance(hint, type) and issubclass(hint, torch.Tensor)


def _literal(value: Any) -> str:
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, torch.dtype):
        return str(value).removeprefix("torch.")
    if isinstance(value, enum.Enum):
        return _literal(value.value)
    return str(value)


def _name(function: Any) -> str:
    while isinstance(function, functools.partial):
        function = function.func
    return str(getattr(function, "__qualname__", function))
