"""`torch.export` programs as StableHLO, for JAX, XLA and whatever else takes it.

    program = torch.export.export(model, (x,))
    exported = torchtpu.export.to_stablehlo(program)
    exported.text        # a module whose @main takes x and returns the results

No device is needed: the program may have been exported on any. What is saved is served without the model's code:

    exported.save("model.pt")
    serve = torchtpu.export.load("model.pt")
    (result,) = serve(x.to("tpu"))
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
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

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a file for [`load`]: nothing but tensors, text and numbers, in `torch.save`'s format."""
        content = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        content.update({name: [dataclasses.astuple(spec) for spec in content[name]] for name in ("inputs", "outputs")})
        torch.save({"format": _FORMAT, **content, "weights": dict(self.weights)}, path)

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


_FORMAT = "torchtpu.export 1"


def load(path: str | os.PathLike[str], device: torch.device | str = "tpu") -> Program:
    """What [`StableHLO.save`] wrote, as something to call with tensors of that device."""
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or content.pop("format", None) != _FORMAT:
        raise ValueError(f"{os.fspath(path)} was not written by torchtpu.export")
    content.update({name: tuple(Spec(*spec) for spec in content[name]) for name in ("inputs", "outputs")})
    return Program(StableHLO(**content), device)


class Program:
    """An exported program on a device: takes its inputs in order, without the weights; returns the tuple of outputs."""

    def __init__(self, exported: StableHLO, device: torch.device | str = "tpu") -> None:
        self.device = torch.empty(0, device=device).device
        self.inputs = exported.inputs[len(exported.weights) :]
        self.outputs = exported.outputs
        self._weights = [weight.to(self.device) for weight in exported.weights.values()]
        entry, functions = _renamed(exported.text)
        count = len(exported.inputs)
        # What the results are like, for nobody else reads the module's types.
        results = range(count, count + len(self.outputs))
        nodes: list[tuple[str, list[Any], int]] = [
            ("full", [("size", ("is", list(spec.shape))), ("fill_value", ("n", 0)), _dtype(spec)], 1)
            for spec in self.outputs
        ]
        arguments: list[tuple[str, Any]] = [("functions", ("s", functions)), ("entry", ("s", entry))]
        arguments += [("inputs", ("vs", list(range(count)))), ("like", ("vs", list(results)))]
        nodes.append(("torchtpu::call", arguments, len(results)))
        graph = (count, nodes, [each + len(results) for each in results])
        described = [
            (*_described(spec), list(torch.empty(spec.shape, device="meta").stride())) for spec in self.outputs
        ]
        sources = list(range(len(results)))
        self._call = _C.CompiledGraph(
            "an exported program", graph, "t" * count, [], described, sources, self.device.index, []
        )

    def __call__(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the program takes {len(self.inputs)} tensors, not {len(inputs)}")
        for spec, value in zip(self.inputs, inputs, strict=True):
            if value.device != self.device or value.dtype != spec.dtype or tuple(value.shape) != spec.shape:
                given = f"{value.dtype} of shape {list(value.shape)} on {value.device}"
                expected = f"{spec.dtype} of shape {list(spec.shape)} on {self.device}"
                raise ValueError(f"{spec.name} must be {expected}, not {given}")
        return tuple(self._call([*self._weights, *(value.detach() for value in inputs)]))


def _renamed(text: str) -> tuple[str, str]:
    """The functions of a module under names that no other module's have, and the name of `@main`."""
    prefix = f"m{hashlib.sha256(text.encode()).hexdigest()[:16]}_"
    functions = text[text.index("{") + 1 : text.rindex("}")].replace("func.func public ", "func.func private ")
    for name in re.findall(r"^func\.func private @(\w+)\(", functions, re.MULTILINE):
        functions = re.sub(rf"(func\.(?:func private|call) )@{name}\(", rf"\1@{prefix}{name}(", functions)
    return f"{prefix}main", functions


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


def _dtype(spec: Spec) -> tuple[str, tuple[str, int]]:
    return "dtype", ("d", _described(spec)[0])


def _described(spec: Spec) -> tuple[int, list[int]]:
    from torchtpu.decompose.encoding import SCALAR_TYPES

    return SCALAR_TYPES[spec.dtype], list(spec.shape)


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
