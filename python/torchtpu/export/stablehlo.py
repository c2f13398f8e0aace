"""What an exported program is: a module of StableHLO, and how to call it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch


class Multiple(NamedTuple):
    """A size that changes: so many times a number of the module's."""

    factor: int
    number: int
    """Its place among the module's `numbers`."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input or output of `@main`: dense, row-major."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """As large as it gets."""
    sizes: tuple[int | Multiple, ...]
    """As large as it is: what lies behind that in a dimension is padding, which may hold anything."""


class Symbol(NamedTuple):
    """A size that the caller chooses. Dimension `dim` of what is called with as the `input`-th tensor, not counting
    weights, is `factor` times it plus `rest`."""

    name: str
    input: int
    dim: int
    factor: int
    rest: int
    low: int
    high: int


class Number(NamedTuple):
    """A number that `@main` takes as a 0-d tensor: a size, or what else follows from the symbols."""

    expression: str
    """In Python, of the symbols' names."""
    dtype: torch.dtype
    capacity: int | None
    """Of a size: the largest."""


@dataclasses.dataclass(frozen=True)
class StableHLO:
    """An exported program."""

    text: str
    """The module, in MLIR's text form."""
    inputs: tuple[Spec, ...]
    """What `@main` takes: the weights that are beside the module, then what the program takes."""
    outputs: tuple[Spec, ...]
    """What `@main` returns: the new values of mutated buffers and inputs, then what the program returns."""
    weights: Mapping[str, torch.Tensor]
    """The weights beside the module, by the name of their input."""
    numbers: tuple[Number, ...] = ()
    """What `@main` takes behind its inputs, where sizes change."""
    symbols: tuple[Symbol, ...] = ()
    """The sizes that change, of which all others follow."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for [`load`]: nothing but tensors, text and numbers, in `torch.save`'s format."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        content.update({name: [_spec_to_plain(spec) for spec in content[name]] for name in ("inputs", "outputs")})
        content.update({name: [tuple(each) for each in content[name]] for name in ("numbers", "symbols")})
        torch.save({"format": _FORMAT, **content, "weights": dict(self.weights)}, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StableHLO:
        """What [`save`] wrote. ValueError for a file that it did not write."""
        content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ValueError(f"{os.fspath(path)} was not written by this version of torchtpu.export")
        content.update({name: tuple(map(_spec_of_plain, content[name])) for name in ("inputs", "outputs")})
        content["numbers"] = tuple(Number(*each) for each in content["numbers"])
        content["symbols"] = tuple(Symbol(*each) for each in content["symbols"])
        return cls(**content)

    def to_bytecode(self, version: str | None = None) -> bytes:
        """The module as a portable artifact, MLIR's bytecode with StableHLO's promise of compatibility.

        `version` is that of the oldest StableHLO which has to read it, such as "1.9.0"; without one, consumers that are
        a month old do. JAX's copy of MLIR writes it, `pip install "torchtpu[bytecode]"`: ImportError where there is
        none. What reads a later version than JAX knows, reads JAX's latest. ValueError for what is no version, and for
        one too old to be written.
        """
        try:
            from jax.extend.mlir import ir, passmanager, serialize_portable_artifact
            from jax.extend.mlir.dialects import stablehlo
            from jax.interpreters.mlir import make_ir_context
        except ImportError as error:
            raise ImportError('bytecode is written by JAX: pip install "torchtpu[bytecode]"') from error
        stablehlo.register_stablehlo_passes()
        month = stablehlo.StablehloCompatibilityRequirement.WEEK_4
        version = version or stablehlo.get_version_from_compatibility_requirement(month)
        with make_ir_context():
            module = ir.Module.parse(self.text)
            # CHLO, which has the special functions, makes no such promise.
            passes = passmanager.PassManager.parse("builtin.module(func.func(chlo-legalize-to-stablehlo))")
            passes.run(module.operation)
            try:
                return bytes(serialize_portable_artifact(module, version))
            except Exception as error:
                known = f"{stablehlo.get_minimum_version()} to {stablehlo.get_current_version()}"
                raise ValueError(f"not serializable for StableHLO {version} (known are {known}): {error}") from error


_FORMAT = "torchtpu.export 2"


def _spec_to_plain(spec: Spec) -> tuple[Any, ...]:
    return spec.name, spec.dtype, spec.shape, [size if isinstance(size, int) else tuple(size) for size in spec.sizes]


def _spec_of_plain(plain: tuple[Any, ...]) -> Spec:
    name, dtype, shape, sizes = plain
    return Spec(name, dtype, shape, tuple(size if isinstance(size, int) else Multiple(*size) for size in sizes))
