"""`torch.export` programs as StableHLO, for JAX, XLA and whatever else takes it.

    program = torch.export.export(model, (x,))
    exported = torchtpu.export.to_stablehlo(program)
    exported.text        # a module whose @main takes x and returns the results

No device is needed: the program may have been exported on any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Literal

import torch

from torchtpu import _C


@dataclasses.dataclass(frozen=True)
class Spec:
    """An input or output of `@main`: dense, row-major."""

    name: str
    dtype: torch.dtype
    shape: tuple[int, ...]


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


def to_stablehlo(program: torch.export.ExportedProgram, weights: Literal["inside", "beside"] = "inside") -> StableHLO:
    """Lowers an exported program through the table that runs tpu tensors.

    Parameters, buffers and constants are "inside", constants of the module, or "beside" it, its first inputs. Sizes
    must be static. NotImplementedError names what cannot be lowered.
    """
    if weights not in ("inside", "beside"):
        raise ValueError(f"weights must be 'inside' or 'beside', not {weights!r}")
    from torch.export.graph_signature import InputKind

    from torchtpu.compile.encode import GraphEncoder

    program = program.run_decompositions({})
    module = program.graph_module
    if any(_is_symbolic(node.meta.get("val")) for node in module.graph.nodes):
        raise NotImplementedError("to_stablehlo: sizes must be static; export without dynamic_shapes")
    encoder = GraphEncoder(module, frozenset(_C.table()), {})
    held = {
        spec.arg.name: _weight(program, spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and spec.target is not None
    }
    taken = [node for node, kind in zip(encoder.placeholders, encoder.kinds, strict=True) if kind == "t"]
    inputs = [_spec(node.name, node.meta["val"]) for node in taken]
    constants = [_bytes(held[spec.name]) if weights == "inside" and spec.name in held else None for spec in inputs]
    outputs = [_spec(str(node), node.meta["val"]) for node in encoder.outputs if node is not None]
    text = _C.stablehlo(
        encoder.encoded(), list(zip(map(_described, inputs), constants, strict=True)), [*map(_described, outputs)]
    )
    if weights == "inside":
        inputs = [spec for spec in inputs if spec.name not in held]
        held = {}
    return StableHLO(text, tuple(inputs), tuple(outputs), held)


def _weight(program: torch.export.ExportedProgram, name: str) -> torch.Tensor:
    value = program.state_dict.get(name)
    return (program.constants[name] if value is None else value).detach().cpu().contiguous()


def _bytes(tensor: torch.Tensor) -> bytes:
    # A clone's storage holds the tensor and nothing else.
    return bytes(tensor.clone().untyped_storage())


def _spec(name: str, value: torch.Tensor) -> Spec:
    return Spec(name, value.dtype, tuple(value.shape))


def _described(spec: Spec) -> tuple[int, list[int]]:
    from torchtpu.decompose.encoding import SCALAR_TYPES

    return SCALAR_TYPES[spec.dtype], list(spec.shape)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
