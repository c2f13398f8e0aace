"""Lowers an exported program to a StableHLO module."""

from __future__ import annotations

import ctypes
from typing import Any, Literal

import torch
from torch.fx import Node

from torchtpu import _C
from torchtpu.export.expressions import value_of
from torchtpu.export.stablehlo import Multiple, Number, Spec, StableHLO, Symbol


def to_stablehlo(
    program: torch.export.ExportedProgram,
    weights: Literal["inside", "beside"] = "inside",
    platform: Literal["tpu", "cpu", "cuda"] | None = None,
) -> StableHLO:
    """Lowers an exported program with the same rows that run tpu tensors.

    Parameters, buffers and constants are constants of the module ("inside"), or its first inputs ("beside"). Sizes
    are static or bounded: ValueError if a changing size has no upper bound. `platform` is the platform whose
    compiler gets the module. Without it, the module is valid for any compiler, except for operations that TPUs
    lack, such as products of int64 matrices. NotImplementedError names what cannot be lowered.
    """
    if weights not in ("inside", "beside"):
        raise ValueError(f"weights must be 'inside' or 'beside', not {weights!r}")
    from torch.export.graph_signature import InputKind

    from torchtpu.graphs.encoder import SCALAR_TYPES
    from torchtpu.graphs.graph_encoder import GraphEncoder

    program = program.run_decompositions(_decompositions(program))
    module = program.graph_module
    for node in _settled(module.graph):
        module.graph.erase_node(node)
    held = {
        spec.arg.name: _weight(program, spec.target)
        for spec in program.graph_signature.input_specs
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER, InputKind.CONSTANT_TENSOR) and spec.target is not None
    }
    symbols, bounds = _sizes(program, skipped=len(held))
    encoder = GraphEncoder(module, frozenset(_C.table()), {}, bounds)
    taken = [node for node, kind in zip(encoder.placeholders, encoder.kinds, strict=True) if kind == "t"]
    # A StableHLO function returns tensors.
    if any(not isinstance(node, Node) for node in encoder.outputs if node is not None):
        raise NotImplementedError("to_stablehlo: the program returns a number, which is none of a module's results")
    inputs = [_spec(encoder, node) for node in taken]
    outputs = [_spec(encoder, node) for node in encoder.outputs if node is not None]
    constants = [_bytes(held[spec.name]) if weights == "inside" and spec.name in held else None for spec in inputs]
    numbers = _numbers(symbols, bounds)
    text = _C.stablehlo(
        encoder.encoded(),
        list(zip(map(described, inputs), constants, strict=True)),
        [SCALAR_TYPES[number.dtype] for number in numbers],
        [*map(described, outputs)],
        platform,
        encoder.described_bounds(),
    )
    if weights == "inside":
        inputs = [spec for spec in inputs if spec.name not in held]
        held = {}
    return StableHLO(text, tuple(inputs), tuple(outputs), held, tuple(numbers), tuple(symbols))


def described(spec: Spec) -> tuple[int, list[int]]:
    """A tensor in the form that the core takes."""
    from torchtpu.graphs.encoder import SCALAR_TYPES

    return SCALAR_TYPES[spec.dtype], list(spec.shape)


def _decompositions(program: torch.export.ExportedProgram) -> Any:
    """PyTorch's decompositions of operators without rows, for changing sizes. The encoder's own decompositions are
    those of eager, which treat the sizes of a call as constants."""
    from torch._decomp import decomposition_table

    from torchtpu.graphs.graph_encoder import is_covered

    if not program.range_constraints:
        return {}
    table = torch.export.default_decompositions()
    called = {node.target for node in program.graph.nodes if node.op == "call_function"}
    # Operators that PyTorch keeps as core operators although it can decompose them.
    table.update({each: decomposition_table[each] for each in called - set(table) if each in decomposition_table})
    for operator in list(table):
        if is_covered(operator):
            table.pop(operator)
    return table


def _settled(graph: torch.fx.Graph) -> list[Node]:
    """Numbers whose values are constants of the program, and assertions about dtypes that tracing has verified."""
    numbers = [
        node
        for node in graph.find_nodes(op="placeholder")
        if not isinstance(node.meta.get("val"), torch.Tensor) and not node.users
    ]
    assertions = graph.find_nodes(op="call_function", target=torch.ops.aten._assert_tensor_metadata.default)
    return [*numbers, *assertions]


def _sizes(program: torch.export.ExportedProgram, skipped: int) -> tuple[list[Symbol], Any]:
    """The changing sizes and their bounds. The first `skipped` inputs are weights."""
    from torch.fx.experimental.symbolic_shapes import free_symbols
    from torch.utils._sympy.numbers import int_oo

    from torchtpu.compile.segments import symbols_of
    from torchtpu.graphs.bounds import Bounds

    module = program.graph_module
    sources = symbols_of(module)
    # Every size of the program must follow from the shapes of its inputs, because callers give no sizes.
    if unknown := free_symbols([node.meta.get("val") for node in module.graph.nodes]) - set(sources):
        raise NotImplementedError(
            f"to_stablehlo: no input tells {', '.join(map(str, sorted(unknown, key=str)))}, which is a size that the "
            "data decide or a number that changes"
        )
    placeholders = module.graph.find_nodes(op="placeholder")
    symbols = []
    for symbol, (position, dim, factor, rest) in sources.items():
        name = placeholders[position].name
        if dim is None:
            raise NotImplementedError(f"to_stablehlo: {name} is a number that changes; only sizes of tensors may")
        limits = program.range_constraints.get(symbol)
        if limits is None or limits.upper is int_oo:
            raise ValueError(
                f"{name} has no upper bound in dimension {dim}: give it one, such as torch.export.Dim('n', max=1024)"
            )
        low, high = int(limits.lower), int(limits.upper)
        symbols.append(Symbol(str(symbol), position - skipped, dim, factor, rest, low, high))
    if not symbols:
        return [], None
    return symbols, Bounds(dict(zip(sources, (symbol.high for symbol in symbols), strict=True)), {})


def _numbers(symbols: list[Symbol], bounds: Any) -> list[Number]:
    """The numbers that the module takes after its inputs."""
    from torch.utils._sympy.printers import PythonPrinter

    if bounds is None:
        return []
    expressions = [PythonPrinter().doprint(each) for each in (*bounds.sizes, *bounds.numbers)]
    capacities = [bounds.capacity(size) for size in bounds.sizes] + [None] * len(bounds.numbers)
    largest = {symbol.name: symbol.high for symbol in symbols}
    kinds = [torch.int64 if isinstance(value_of(each, largest), int) else torch.float64 for each in expressions]
    return [Number(*each) for each in zip(expressions, kinds, capacities, strict=True)]


def _weight(program: torch.export.ExportedProgram, name: str) -> torch.Tensor:
    value = program.state_dict.get(name)
    return (program.constants[name] if value is None else value).detach().cpu().contiguous()


def _bytes(tensor: torch.Tensor) -> bytes:
    return ctypes.string_at(tensor.data_ptr(), tensor.nbytes)


def _spec(encoder: Any, node: Any) -> Spec:
    value = node.meta["val"]
    shape = [encoder.at_most(size) for size in value.shape]
    sizes: list[int | Multiple] = []
    for capacity, numbers in encoder.dims_of(value):
        if len(numbers) > 1:
            # The valid elements of such a dimension have padding between them, which a caller cannot describe.
            raise NotImplementedError(f"to_stablehlo: a dimension of {node.name} is a product of sizes that change")
        sizes.append(Multiple(capacity // encoder.capacity_of(numbers[0]), numbers[0]) if numbers else capacity)
    return Spec(node.name, value.dtype, tuple(shape), tuple(sizes))
