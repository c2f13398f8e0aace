"""An exported program: a StableHLO module, and how to call it."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch


class Multiple(NamedTuple):
    """A changing size: a multiple of a number of the module."""

    factor: int
    number: int
    """The index in the module's `numbers`."""


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input or output of `@main`: dense, row-major."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]
    """The capacities."""
    sizes: tuple[int | Multiple, ...]
    """The actual sizes. Elements after them in a dimension are padding, with any value."""


class Symbol(NamedTuple):
    """A size that the caller chooses. Dimension `dim` of the `input`-th tensor, not counting weights, is `factor`
    times the size plus `rest`."""

    name: str
    input: int
    dim: int
    factor: int
    rest: int
    low: int
    high: int


class Number(NamedTuple):
    """A number that `@main` takes as a 0-d tensor: a size, or another value that follows from the symbols."""

    expression: str
    """In Python, with the symbols' names."""
    dtype: torch.dtype
    capacity: int | None
    """The largest value of a size."""


@dataclasses.dataclass(frozen=True)
class StableHLO:
    """An exported program."""

    text: str
    """The module, in MLIR's text form."""
    inputs: tuple[Spec, ...]
    """The inputs of `@main`: the weights that are not in the module, then the inputs of the program."""
    outputs: tuple[Spec, ...]
    """The results of `@main`: the new values of mutated buffers and inputs, then the results of the program."""
    weights: Mapping[str, torch.Tensor]
    """The weights that are not in the module, by the name of their input."""
    numbers: tuple[Number, ...] = ()
    """The numbers that `@main` takes after its inputs, if sizes change."""
    symbols: tuple[Symbol, ...] = ()
    """The changing sizes, from which all others follow."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for [`load`]: only tensors, text and numbers, in `torch.save`'s format."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        content.update({name: [_spec_to_plain(spec) for spec in content[name]] for name in ("inputs", "outputs")})
        content.update({name: [tuple(each) for each in content[name]] for name in ("numbers", "symbols")})
        torch.save({"format": _FORMAT, **content, "weights": dict(self.weights)}, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> StableHLO:
        """Reads a file of [`save`]. ValueError for other files."""
        content = torch.load(path, map_location="cpu", weights_only=True)
        if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
            raise ValueError(f"{os.fspath(path)} was not written by this version of torchtpu.export")
        content.update({name: tuple(map(_spec_of_plain, content[name])) for name in ("inputs", "outputs")})
        content["numbers"] = tuple(Number(*each) for each in content["numbers"])
        content["symbols"] = tuple(Symbol(*each) for each in content["symbols"])
        return cls(**content)

    def to_bytecode(self, version: str | None = None) -> bytes:
        """The module as a portable artifact: MLIR bytecode with StableHLO's compatibility guarantee.

        `version` is the oldest StableHLO version that must read it, such as "1.9.0". Without it, consumers that
        are up to a month old can read it. JAX's copy of MLIR writes it (`pip install "torchtpu[bytecode]"`);
        ImportError if it is missing. For a version later than JAX's, JAX's latest version is written. ValueError
        for an invalid version, and for one that is too old.
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
            # CHLO, which has the special functions, has no such guarantee.
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
