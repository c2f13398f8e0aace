"""From a call to the text of a StableHLO module, by JAX. The text holds no name of a file and no line."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import torch
from jax._src import config
from jax._src.interpreters import mlir
from jaxlib.mlir import ir

from torchtpu.kernels.calls import Call, Spec
from torchtpu.kernels.store import Text, is_64_bit

# Each plugin's compiler has its own implementation of these.
COMPILER_CALLS = ("Eigh", "Qr", "ProductOfElementaryHouseholderReflectors", "tpu_custom_call")
# The dtypes of JAX's arrays for elements of 64 bits, unless its user enables 64-bit numbers.
NARROW = {torch.int64: torch.int32}
# As MLIR writes them.
ELEMENTS = {
    "i1": torch.bool,
    "i8": torch.int8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "ui8": torch.uint8,
    "ui16": torch.uint16,
    "ui32": torch.uint32,
    "ui64": torch.uint64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "f32": torch.float32,
    "f64": torch.float64,
    "complex<f32>": torch.complex64,
    "complex<f64>": torch.complex128,
    "f8E4M3FN": torch.float8_e4m3fn,
    "f8E5M2": torch.float8_e5m2,
}
WIDE = (torch.float64, torch.complex128, torch.uint64)


def trace(call: Call, specs: Sequence[Spec], platform: str) -> Text:
    """The program of a call for tensors like these. `platform`: "tpu", or "cpu" for plain StableHLO."""
    results = Results()
    function = results.of(call.function())
    arrays = [array_like(spec) for spec in specs]
    if platform == "tpu":
        return _lower(function, arrays, "tpu", results)
    from torchtpu.kernels.interpreter import interpreted

    text = _lower(interpreted(function), arrays, "cpu", results)
    # JAX computes some factorizations on the CPU by functions of its own process.
    return text if _is_portable(text.functions) else _lower(interpreted(function), arrays, "tpu", results)


def kernels_in(call: Call, specs: Sequence[Spec]) -> list[tuple[str, list[str]]]:
    """The name of each Pallas kernel that a call runs, with its blocks."""
    from torchtpu.kernels.interpreter import kernels_of

    results = Results()
    closed = jax.make_jaxpr(results.of(call.function()))(*map(array_like, specs))
    return kernels_of(closed.jaxpr)


def array_like(spec: Spec) -> Any:
    """The array that JAX traces with in place of a tensor.

    Raises TypeError for dtypes that JAX would truncate without an error.
    """
    dtype = spec.dtype
    if not is_64_bit():
        if dtype in WIDE:
            name = str(dtype).removeprefix("torch.")
            raise TypeError(
                f"a kernel is called with a tensor of {name}, and JAX computes in 32 bits: convert the tensor, or set "
                f"JAX_ENABLE_X64=1"
            )
        dtype = NARROW.get(dtype, dtype)
    return jax.ShapeDtypeStruct(spec.shape, to_jax(dtype))


def to_jax(dtype: torch.dtype) -> Any:
    """JAX's dtype of that name."""
    name = str(dtype).removeprefix("torch.")
    found = jax.numpy.bool_ if dtype is torch.bool else getattr(jax.numpy, name, None)
    if found is None:
        raise TypeError(f"JAX has no dtype {name}")
    return found


def to_torch(dtype: Any) -> torch.dtype:
    """torch's dtype of that name."""
    found = getattr(torch, str(dtype), None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"a kernel returns {dtype}, which torch has no dtype for")
    return found


class Results:
    """Records how the results of a function are nested."""

    structure: Any = None

    def of(self, function: Callable[..., Any]) -> Callable[..., list[Any]]:
        """The function, returning the flat list of its results."""

        def kernel(*arrays: Any) -> list[Any]:
            leaves: list[Any] = []
            self.structure = flatten_results(function(*arrays), leaves)
            return leaves

        return kernel


def flatten_results(value: Any, leaves: list[Any]) -> Any:
    """Adds the arrays of a result to `leaves`; returns how they were nested."""
    if value is None:
        return None
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return [kind, *(flatten_results(each, leaves) for each in value)]
    if isinstance(value, dict):
        return ["dict", list(value), *(flatten_results(each, leaves) for each in value.values())]
    if not isinstance(value, jax.Array | int | float | complex) and not hasattr(value, "__jax_array__"):
        import numpy

        if not isinstance(value, numpy.ndarray | numpy.generic):
            raise TypeError(
                f"a kernel returns arrays, None, and lists, tuples and dicts of them, not {type(value).__name__}"
            )
    leaves.append(jax.numpy.asarray(value))
    return "t"


def _lower(function: Callable[..., list[Any]], arrays: Sequence[Any], platform: str, results: Results) -> Text:
    # Mosaic kernels are part of the text, with the places in files that their operations come from.
    with config.traceback_in_locations_limit(0):
        traced = jax.jit(function, keep_unused=True).trace(*arrays)
        # The rules are part of the key of JAX's cache of lowerings.
        parameters = mlir.LoweringParameters(override_lowering_rules=_rules(platform))
        lowered = traced.lower(lowering_platforms=(platform,), _private_parameters=parameters)
    specs = tuple(Spec(to_torch(each.dtype), tuple(each.shape)) for each in traced.jaxpr.out_avals)
    functions, entry = _functions(lowered.compiler_ir("stablehlo"))
    return Text(functions, entry, specs, results.structure)


def _rules(platform: str) -> Any:
    if platform == "tpu":
        from torchtpu.kernels import ragged

        return ragged.rules()
    from torchtpu.kernels import meshes

    return meshes.rules()


def _functions(module: Any) -> tuple[str, str]:
    """The text of a module's functions under names that no other module's have, and the name of `@main`."""
    text = module.operation.get_asm(enable_debug_info=False)
    body = text[text.index("{") :]  # without the module's name
    prefix = f"k{hashlib.sha256(body.encode()).hexdigest()[:16]}_"
    with module.context:
        table = ir.SymbolTable(module.operation)
        for function in module.body.operations:
            if function.operation.name != "func.func":
                raise NotImplementedError(f"the module of a kernel holds {function.operation.name}")
            name = ir.StringAttr(function.attributes["sym_name"]).value
            renamed = f"{prefix}{name}"
            ir.SymbolTable.replace_all_symbol_uses(name, renamed, module.operation)
            table.set_symbol_name(function, renamed)
            for attribute in ("arg_attrs", "res_attrs"):
                if attribute in function.attributes:
                    del function.attributes[attribute]
            function.attributes["sym_visibility"] = ir.StringAttr.get("private")
        parts = [each.operation.get_asm(enable_debug_info=False) for each in module.body.operations]
    return "\n".join(parts) + "\n", f"{prefix}main"


def read_module(serialized: bytes) -> Text:
    """The program of a module that `jax.export` serialized."""
    from jaxlib.mlir.dialects import stablehlo

    with mlir.make_ir_context() as context:
        module = stablehlo.deserialize_portable_artifact(context, serialized)
        main: Any = next(
            each for each in module.body.operations if ir.StringAttr(each.attributes["sym_name"]).value == "main"
        )
        takes = tuple(_spec_of(each).dtype for each in main.type.inputs)
        results = tuple(map(_spec_of, main.type.results))
        functions, entry = _functions(module)
    return Text(functions, entry, results, ["tuple", *["t"] * len(results)], takes)


def _spec_of(tensor: Any) -> Spec:
    ranked = ir.RankedTensorType(tensor)
    return Spec(ELEMENTS[str(ranked.element_type)], tuple(ranked.shape))


def _is_portable(text: str) -> bool:
    calls = text.split("stablehlo.custom_call ")[1:]
    return all(call.lstrip("@").partition("(")[0] in COMPILER_CALLS for call in calls)
