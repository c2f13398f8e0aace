"""Traces one call of an operator to a functional graph of operators with rows."""

from __future__ import annotations

import dataclasses
import functools
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._ops import OpOverload
from torch.fx import GraphModule

from torchtpu.graphs.names import has_row, name_of
from torchtpu.operators.decompositions import EXTRA

# A decomposition may call operators that need another decomposition. No known chain is longer than four.
MAX_ROUNDS = 12
# Namespaces of operators for which PyTorch has functional forms.
FUNCTIONALIZED = ("aten", "prims")
# make_fx's error if an operator depends on a tensor's values.
NEEDS_VALUES = "get value out of a tracing tensor"
# Operators that return their argument unchanged, if there is no mutation and layout is not part of a value.
IDENTITIES = frozenset(
    {
        "alias",
        "clone",
        "contiguous",
        "detach",
        "detach_copy",
        "alias_copy",
        "lift",
        "lift_fresh",
        "lift_fresh_copy",
        "prims::view_of",
        "prims::clone",
    }
)


@dataclasses.dataclass(frozen=True)
class Traced:
    """A functional graph. Its placeholders are the call's tensors. It returns a flat list of tensors and Nones."""

    operator: OpOverload
    module: GraphModule


def trace_graph(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], rows: frozenset[str]) -> Traced:
    """Traces until every operator in the graph has a row, or raises an error with the operators that have neither
    a row nor a decomposition."""
    call = _Call.of(operator, args, kwargs)
    try:
        return _trace_to_rows(call, rows)
    except (RuntimeError, TypeError):
        # A few decompositions refuse a CPU tensor next to device tensors, even if it is a single number.
        if not any(tensor.device.type == "cpu" for tensor in call.tensors):
            raise
        return _trace_to_rows(call.all_on_meta(), rows)


def trace_fake(operator: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any], rows: frozenset[str]) -> Traced:
    """The same for a call with fake tensors, whose sizes may be symbols."""
    return _trace_to_rows(_Call.of(operator, args, kwargs, _as_it_is), rows)


def _as_it_is(value: Any) -> Any:
    return value


def _trace_to_rows(call: _Call, rows: frozenset[str]) -> Traced:
    operator = call.operator
    table = decompositions(rows)
    for _ in range(MAX_ROUNDS):
        module = _trace_once(call, table)
        missing = {
            node.target: None
            for node in module.graph.nodes
            if isinstance(node.target, OpOverload)
            and not _is_covered(node.target, rows)
            and not isinstance(node.meta.get("val"), torch.SymInt)
        }
        if not missing:
            return Traced(operator, module)
        further = {each: kernel for each in missing if (kernel := _composite_kernel(each)) and each not in table}
        if not further:
            raise _no_decomposition(operator, list(missing))
        table.update(further)
    raise _no_decomposition(operator, list(missing))


def flatten_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors of an argument list in order, with lists flattened and None skipped."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from flatten_tensors(each)


def arguments_of(operator: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Iterator[tuple[Any, Any]]:
    """The arguments of an operator's schema, each with its value in a call or its default."""
    for position, argument in enumerate(operator._schema.arguments):
        if position < len(args):
            yield argument, args[position]
        elif argument.name in kwargs:
            yield argument, kwargs[argument.name]
        elif argument.has_default_value():
            yield argument, argument.default_value
        else:
            raise TypeError(f"{operator} misses its argument {argument.name}")


_tables: dict[frozenset[str], dict[Any, Callable[..., Any]]] = {}


def decompositions(rows: frozenset[str]) -> dict[Any, Callable[..., Any]]:
    """PyTorch's decompositions and our own, for operators without a row."""
    if rows not in _tables:
        import torch._refs  # noqa: F401 (registers more decompositions)
        from torch._decomp import core_aten_decompositions, decomposition_table

        everything = {**core_aten_decompositions(), **decomposition_table, **EXTRA}
        _tables[rows] = {
            operator: function
            for operator, function in everything.items()
            if isinstance(operator, OpOverload) and not _is_covered(operator, rows)
        }
    return _tables[rows]


def _is_covered(operator: OpOverload, rows: frozenset[str]) -> bool:
    return has_row(operator, rows) or name_of(operator) in IDENTITIES


def _trace_once(call: _Call, table: dict[Any, Callable[..., Any]]) -> GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = make_fx(call, decomposition_table=table, tracing_mode="real")(*call.tensors)
            module.graph.eliminate_dead_code()
            for _ in range(MAX_ROUNDS):
                writing = _writing(module)
                if not writing:
                    break
                if foreign := [each for each in writing if each.namespace not in FUNCTIONALIZED]:
                    raise _no_decomposition(call.operator, foreign)
                functional = torch.func.functionalize(module, remove="mutations")
                module = make_fx(functional, decomposition_table=table, tracing_mode="real")(*call.tensors)
                module.graph.eliminate_dead_code()
            else:
                raise NotImplementedError("a decomposition mutates its arguments in a way that cannot be undone")
        except (NotImplementedError, RuntimeError) as error:
            # RecursionError is also a RuntimeError: a decomposition that leads back to the operator.
            if not isinstance(error, NotImplementedError | RecursionError) and NEEDS_VALUES not in str(error):
                raise
            raise _no_decomposition(call.operator, [call.operator], str(error).partition("\n")[0]) from error
    module.recompile()
    return module


def _writing(module: GraphModule) -> list[OpOverload]:
    """The operators of a graph that write to their arguments."""
    called = (node.target for node in module.graph.nodes)
    return [each for each in called if isinstance(each, OpOverload) and each._schema.is_mutable]


class _Call:
    """A call as a function of its tensors. It returns the values that the core expects: first the new values of
    mutated arguments in the schema's order, then the other results.
    """

    def __init__(self, operator: OpOverload, values: list[Any]) -> None:
        self.operator = operator
        self.values = values
        # The contents of out= arguments are never read, so they are not inputs of the graph.
        self.tensors = [
            tensor
            for argument, value in zip(operator._schema.arguments, values, strict=True)
            if not argument.is_out
            for tensor in flatten_tensors(value)
        ]
        self.functional = functional_variant(operator)

    @classmethod
    def of(
        cls,
        operator: OpOverload,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        place: Callable[[Any], Any] | None = None,
    ) -> _Call:
        values = [(place or _on_meta)(value) for _, value in arguments_of(operator, args, kwargs)]
        return cls(operator, values)

    def all_on_meta(self) -> _Call:
        """The same call with its 0-d CPU tensors as meta tensors."""
        return _Call(self.operator, [_map_tensors(lambda tensor: tensor.to("meta"), value) for value in self.values])

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor | None]:
        remaining = iter(tensors)
        values = [
            value if argument.is_out else _map_tensors(lambda _: next(remaining), value)
            for argument, value in zip(self.operator._schema.arguments, self.values, strict=True)
        ]
        if self.functional is not None:
            return self._call_functional(self.functional, values)
        return self._call_mutating(values)

    def _call_functional(self, functional: OpOverload, values: list[Any]) -> list[torch.Tensor | None]:
        arguments = self.operator._schema.arguments
        named = {argument.name: value for argument, value in zip(arguments, values, strict=True)}
        results = _invoke(functional, [named[argument.name] for argument in functional._schema.arguments])
        targets = [value for argument, value in zip(arguments, values, strict=True) if _is_written(argument)]
        flat = list(_flatten_results(results))
        mutated = list(flatten_tensors(targets))
        # An in-place or out= form computes the functional form and then writes the result into its arguments.
        for position, target in enumerate(mutated):
            result = flat[position]
            if result is None:
                flat[position] = target
                continue
            if result.dtype != target.dtype:
                result = torch.ops.aten._to_copy.default(result, dtype=target.dtype)
            if result.shape != target.shape and target.dim() >= result.dim():
                result = result.expand(target.shape)
            flat[position] = result
        return flat

    def _call_mutating(self, values: list[Any]) -> list[torch.Tensor | None]:
        arguments = self.operator._schema.arguments
        values = [
            _map_tensors(_blank if argument.is_out else _copy, value) if _is_written(argument) else value
            for argument, value in zip(arguments, values, strict=True)
        ]
        results = _invoke(self.operator, values)
        written = [value for argument, value in zip(arguments, values, strict=True) if _is_written(argument)]
        returns = self.operator._schema.returns
        each_result = [results] if len(returns) == 1 else list(results or ())
        fresh = [result for schema, result in zip(returns, each_result, strict=True) if not _is_written(schema)]
        return [*flatten_tensors(written), *_flatten_results(fresh)]


def functional_variant(operator: OpOverload) -> OpOverload | None:
    """The operator itself if it mutates nothing, else the overload that returns the same values as new tensors, if
    any."""
    schema = operator._schema
    if not schema.is_mutable:
        return operator
    namespace, _, name = schema.name.partition("::")
    kept = [argument for argument in schema.arguments if not argument.is_out]
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    packet = getattr(getattr(torch.ops, namespace), base, None)
    if packet is None:
        return None
    written = sum(_is_written(argument) for argument in schema.arguments)
    for overload in packet.overloads():
        candidate = getattr(packet, overload)
        other = candidate._schema
        if (
            not other.is_mutable
            and [(argument.name, str(argument.type)) for argument in other.arguments]
            == [(argument.name, str(argument.type)) for argument in kept]
            # The results must be the written arguments; otherwise they could not be matched.
            and len(other.returns) == written
            and all(_is_written(each) for each in schema.returns)
        ):
            return candidate
    return None


def _composite_kernel(operator: OpOverload) -> Callable[..., Any] | None:
    """A kernel of PyTorch that is written with other operators."""
    for key in ("CompositeImplicitAutograd", "CompositeExplicitAutograd"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(operator.name(), key):
            return functools.partial(operator._op_dk, getattr(torch._C.DispatchKey, key))
    return None


def _invoke(operator: OpOverload, values: list[Any]) -> Any:
    positional = [
        value for argument, value in zip(operator._schema.arguments, values, strict=True) if not argument.kwarg_only
    ]
    keywords = {
        argument.name: value
        for argument, value in zip(operator._schema.arguments, values, strict=True)
        if argument.kwarg_only
    }
    return operator(*positional, **keywords)


def _is_written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.clone.default(tensor)


def _blank(tensor: torch.Tensor) -> torch.Tensor:
    return torch.ops.aten.full.default(tensor.shape, 0, dtype=tensor.dtype, device="meta")


def _flatten_results(results: Any) -> Iterator[torch.Tensor | None]:
    if isinstance(results, list | tuple):
        for each in results:
            yield from _flatten_results(each)
    elif results is None or isinstance(results, torch.Tensor):
        yield results
    else:
        raise NotImplementedError(f"it returns a {type(results).__name__}, which needs the values")


def _on_meta(value: Any) -> Any:
    """Tensors of the device as meta tensors with the same shape and layout. 0-d CPU tensors and other values are
    unchanged."""
    if isinstance(value, torch.Tensor):
        if value.device.type == "cpu" and value.dim() == 0:
            return value
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):
        return None  # the core has the generator; meta tensors have none
    if isinstance(value, list | tuple):
        return [_on_meta(each) for each in value]
    return value


def _map_tensors(function: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """The same structure with the function applied to its tensors, in order."""
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, list):
        return [_map_tensors(function, each) for each in value]
    return value


def _no_decomposition(operator: OpOverload, missing: list[OpOverload], reason: str = "") -> NotImplementedError:
    names = ", ".join(each.name() for each in missing)
    itself = missing == [operator]
    detail = "no decomposition of it exists" if itself else f"PyTorch's decomposition of it needs {names}"
    return NotImplementedError(
        f"{operator.name()} has no row in the table, and {detail}{f': {reason}' if reason else ''}"
    )
