"""Kernels in Pallas, and functions for JAX's arrays, as operators on tensors.

    @torchtpu.pallas.custom_jax_kernel
    def relu(x):
        return jax.nn.relu(x)

    @functools.partial(torchtpu.pallas.jax_op, "mine::scale")
    def scale(x: jax.Array, factor: float) -> jax.Array:
        return x * factor

A kernel is part of the program that it is called in: of a chunk, of a compiled graph, of a step. On a TPU Pallas
kernels are compiled by Mosaic; on other devices they are interpreted as StableHLO. See docs/kernels.md.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from torchtpu import _C
from torchtpu.kernels import operators
from torchtpu.kernels.calls import Call, Kernel, Layout, Place, Spec, call_named, fixed
from torchtpu.kernels.check import SECONDS, Compiler, KernelError, Report, check
from torchtpu.kernels.signatures import Signature
from torchtpu.tpu import modes

__all__ = [
    "JaxCallable",
    "JaxOp",
    "KernelError",
    "Report",
    "custom_jax_kernel",
    "examples",
    "jax_op",
    "load",
    "splash_attention",
]

operators.register()
KERNEL = torch.ops.torchtpu.kernel.default


def custom_jax_kernel(
    jax_fn: Callable[..., Any] | None = None,
    name: str | None = None,
    static_argnums: int | Iterable[int] = (),
    donate_argnums: int | Iterable[int] | None = None,
    input_output_aliases: Mapping[int, int] | None = None,
    *,
    static_argnames: str | Iterable[str] = (),
    reference: Callable[..., Any] | None = None,
    version: str | None = None,
    padding: str | None = None,
) -> Any:
    """Wraps a function on JAX arrays so that it takes and returns tensors of the device. Also a decorator, with or
    without arguments.

    The function needs no annotations. Its arguments are tensors, None, and lists and tuples of tensors; arguments in
    `static_argnums` or `static_argnames` are fixed values. The results have the function's nesting.

    name                  for errors and counters; the function's if None
    donate_argnums        arguments whose memory is given to the kernel. A later read of them raises RuntimeError, until
                          something is copied into them. In compiled graphs they stay readable: the compiler reuses
                          memory by itself
    input_output_aliases  maps such an argument to the result that is written into its memory
    reference             a plain JAX function of the same arguments; its gradient is used if the kernel has none
    version               identifies the function in keys, instead of a hash of its code
    padding               "zeros" if zeros behind the end of a dimension whose size changes do no harm: the valid
                          results, and their gradients, are the same with them. Then graphs with such sizes have one
                          program up to a bound. Each size of a result is one of an argument, or constant

    A call raises TypeError for an argument that is neither a tensor nor static, ValueError for a tensor passed as a
    static argument, any exception of the function, and ImportError if JAX is needed but not installed.
    """
    options: dict[str, Any] = {
        "static_argnums": static_argnums,
        "donate_argnums": donate_argnums,
        "input_output_aliases": input_output_aliases,
        "static_argnames": static_argnames,
        "reference": reference,
        "version": version,
        "padding": padding,
    }
    if jax_fn is None:
        return functools.partial(custom_jax_kernel, name=name, **options)
    return JaxCallable(name or str(getattr(jax_fn, "__name__", "kernel")), jax_fn, **options)


class _Called:
    """Methods of a kernel that do not run it. They take the arguments of a call. Any object with a dtype and a shape,
    such as a tensor on "meta", may replace a tensor."""

    def _taken(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, list[torch.Tensor]]:
        raise NotImplementedError

    def _described(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, tuple[Spec, ...]]:
        call, tensors = self._taken([_as_tensor(each) for each in args], kwargs)
        return call, operators.specs_of(tensors)

    def check(
        self, chip: str, *args: Any, gradient: bool = False, seconds: float = SECONDS, **kwargs: Any
    ) -> list[Report]:
        """Compiles the kernel for a chip ("v5e", "v6e", "tpu7x", ...) with libtpu, which needs no TPU.

        Returns a report for each program: the kernel's, and with `gradient` those of its gradient. Raises KernelError,
        with the kernel, its blocks and the cause, if the compiler refuses it or takes longer than `seconds`.
        """
        with Compiler() as compiler:
            return self._checked(compiler, chip, args, kwargs, gradient, seconds)

    def _checked(
        self, compiler: Compiler, chip: str, args: Sequence[Any], kwargs: Any, gradient: bool, seconds: float
    ) -> list[Report]:
        call, specs = self._described(args, kwargs)
        reports = [check(call, specs, chip, seconds, compiler)]
        if gradient:
            from torchtpu.kernels.saved import gradient_calls, plan_for

            for derived, inputs in gradient_calls(call, specs, plan_for(call, specs), "cpu"):
                reports.append(check(derived, inputs, chip, seconds, compiler))
        return reports

    def save(
        self,
        path: str | os.PathLike[str],
        *args: Any,
        platforms: Sequence[str] = ("cpu", "tpu"),
        gradient: bool = False,
        **kwargs: Any,
    ) -> int:
        """Writes the kernel's programs for such arguments into a file for [`load`]; returns their number.

        Raises ValueError for a function that another process cannot identify: give it a `version`.
        """
        from torchtpu.kernels import saved

        return saved.save(path, [self._described(args, kwargs)], platforms, gradient)

    def example(self, *args: Any, **kwargs: Any) -> None:
        """Registers arguments for `python -m torchtpu kernels check` and `cache build --kernels`."""
        examples.append((self, args, kwargs))


# The kernels and arguments that `example` registered.
examples: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = []


def load(path: str | os.PathLike[str]) -> int:
    """Reads kernels that `save` wrote, so that their calls need no JAX; returns the number of programs.

    The functions must have the same code as when they were saved, or the same `version`. Raises ValueError if the file
    was not written by `save`.
    """
    from torchtpu.kernels import saved

    return saved.load(path)


def splash_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    is_causal: bool = False,
    window: tuple[int, int] | None = None,
    segment_ids: torch.Tensor | tuple[torch.Tensor, torch.Tensor] | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Attention by JAX's splash kernel, which does not hold the matrix of scores; [b, h, i, d], in the query's dtype.

    query        [b, h, i, d], float32 or bfloat16. On a TPU products are in bfloat16
    key, value   [b, g, j, d]. h is a multiple of g: heads of queries share those of keys without a copy
    is_causal    a query sees the keys up to its own position
    window       (left, right): a query sees at most so many keys before and after its own position
    segment_ids  [b, i], integers, for i = j; or those of queries [b, i] and of keys [b, j]. A query sees the keys of
                 its own segment, such as a document. It must see at least one key
    scale        of the scores; 1 / sqrt(d) if None

    Raises ValueError for other shapes, or if i and j are no multiples of 128.
    """
    from torchtpu.kernels import routing

    routing.check_sizes(query, key, value)
    segments = (segment_ids, segment_ids) if isinstance(segment_ids, torch.Tensor) else segment_ids
    for ids, each in zip(segments or (), (query, key), strict=False):
        if tuple(ids.shape) != (each.shape[0], each.shape[2]):
            raise ValueError(f"segment_ids has the shape {list(ids.shape)}, not {[each.shape[0], each.shape[2]]}")
    scale = float(query.shape[3] ** -0.5 if scale is None else scale)
    result: torch.Tensor = routing.kernel(routing.ATTENTION)(
        query, key, value, bool(is_causal), scale, window, segments and tuple(each.to(torch.int32) for each in segments)
    )
    return result


def _as_tensor(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(map(_as_tensor, value))
    if isinstance(value, torch.Tensor) or not (hasattr(value, "shape") and hasattr(value, "dtype")):
        return value
    dtype = value.dtype if isinstance(value.dtype, torch.dtype) else getattr(torch, str(value.dtype))
    return torch.empty(tuple(value.shape), dtype=dtype, device="meta")


class JaxCallable(_Called):
    """A function on JAX arrays that is called with tensors; see [`custom_jax_kernel`]."""

    def __init__(
        self,
        name: str,
        jax_fn: Callable[..., Any],
        *,
        static_argnums: int | Iterable[int] = (),
        donate_argnums: int | Iterable[int] | None = None,
        input_output_aliases: Mapping[int, int] | None = None,
        static_argnames: str | Iterable[str] = (),
        reference: Callable[..., Any] | None = None,
        version: str | None = None,
        padding: str | None = None,
    ) -> None:
        self.name = name
        self.jax_fn = jax_fn
        self.static_argnums = _numbers(static_argnums)
        self.static_argnames = (static_argnames,) if isinstance(static_argnames, str) else tuple(static_argnames)
        self.input_output_aliases = dict(input_output_aliases or {})
        donated = self.input_output_aliases if donate_argnums is None else donate_argnums
        self.donate_argnums = _numbers(donated)
        if self.input_output_aliases and set(self.input_output_aliases) != set(self.donate_argnums):
            raise ValueError(
                f"{name}: input_output_aliases has the arguments {sorted(self.input_output_aliases)}, and "
                f"donate_argnums {sorted(self.donate_argnums)}: they must be the same"
            )
        self._kernel = Kernel(name, jax_fn, reference, version, padding)
        # The calls whose arguments are all tensors, by the number of arguments.
        self._of_tensors: dict[int, str] = {}
        functools.update_wrapper(self, jax_fn, updated=())

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not kwargs and not self.static_argnums and _all_tensors(args):
            tensors = list(args)
            call = _call_of_tensors(self, len(args))
        else:
            tensors = []
            call = self._find(args, kwargs, tensors)
        results = _in_one_program(self._donating, args, tensors, call) if self.donate_argnums else KERNEL(tensors, call)
        structure = _structure_of(call)
        return results[0] if structure == "t" else _nested(structure, results, [0])

    def _donating(self, args: Sequence[Any], tensors: list[torch.Tensor], call: str) -> Any:
        """Runs a call, and gives away or writes the arguments that it donates."""
        results = KERNEL(tensors, call)
        for argument, result in self.input_output_aliases.items():
            args[argument].copy_(results[result])
        for argument in self.donate_argnums:
            if argument not in self.input_output_aliases:
                _donate(args[argument], self.name)
        return results

    def _taken(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, list[torch.Tensor]]:
        tensors: list[torch.Tensor] = []
        return call_named(self._find(args, kwargs, tensors)), tensors

    def _find(self, args: Sequence[Any], kwargs: Mapping[str, Any], tensors: list[torch.Tensor]) -> str:
        """The call with these arguments; adds their tensors to `tensors`."""
        places = [self._place(value, tensors, i, i in self.static_argnums) for i, value in enumerate(args)]
        named = [
            (name, self._place(value, tensors, name, name in self.static_argnames)) for name, value in kwargs.items()
        ]
        return _call_for(self._kernel, tuple(places), tuple(named))

    def _place(self, value: Any, tensors: list[torch.Tensor], which: Any, is_static: bool) -> Place:
        if is_static:
            if isinstance(value, torch.Tensor):
                raise ValueError(f"{self.name}: argument {which} is static, and is given a tensor")
            return fixed(value)
        if isinstance(value, torch.Tensor):
            tensors.append(value)
            return ("t", len(tensors) - 1)
        if value is None:
            return ("n",)
        if isinstance(value, list | tuple):
            inside = tuple([self._place(each, tensors, which, False) for each in value])
            return ("l" if isinstance(value, list) else "u", inside)
        raise TypeError(
            f"{self.name}: argument {which} must be a tensor, not {type(value).__name__}; name it in static_argnums if "
            f"it is part of the program"
        )

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def _all_tensors(values: Sequence[Any]) -> bool:
    for value in values:  # noqa: SIM110 (a generator would cost more than the loop)
        if not isinstance(value, torch.Tensor):
            return False
    return True


@torch.compiler.assume_constant_result
def _call_of_tensors(function: JaxCallable, count: int) -> str:
    name = function._of_tensors.get(count)
    if name is None:
        places = tuple(("t", i) for i in range(count))
        name = function._of_tensors[count] = _call_for(function._kernel, places, ())
    return name


@torch.compiler.assume_constant_result
def _call_for(kernel: Kernel, places: tuple[Place, ...], named: tuple[tuple[str, Place], ...]) -> str:
    return kernel.call(Layout(places, named)).name


@torch.compiler.assume_constant_result
def _structure_of(call: str) -> Any:
    return call_named(call).structure


def _nested(structure: Any, results: Sequence[Any], place: list[int]) -> Any:
    """The results in the nesting of the function's results."""
    if structure == "t":
        place[0] += 1
        return results[place[0] - 1]
    if structure is None:
        return None
    if structure[0] == "dict":
        return {key: _nested(each, results, place) for key, each in zip(structure[1], structure[2:], strict=True)}
    filled = [_nested(each, results, place) for each in structure[1:]]
    return filled if structure[0] == "list" else tuple(filled)


def _in_one_program(function: Callable[..., Any], *args: Any) -> Any:
    """Calls a function. In Strict its operators are recorded and run as one program, since a program can only reuse
    the memory of what is given away before it runs."""
    if torch.compiler.is_compiling() or modes.get_eager_mode() is not modes.EagerMode.STRICT:
        return function(*args)
    with modes.set_eager_mode(modes.EagerMode.FUSED):
        return function(*args)


def _donate(value: Any, receiver: str) -> None:
    """Gives the memory of an argument to the kernel that was called with it. A later read raises RuntimeError."""
    if isinstance(value, list | tuple):
        for each in value:
            _donate(each, receiver)
    elif isinstance(value, torch.Tensor) and not torch.compiler.is_compiling() and type(value) in _OWNERS:
        torch.autograd.graph.increment_version(value)  # backward must not read it
        _C.donate(value, receiver)


# The classes of tensors with memory of their own. Tensors of a trace have none: there, the compiler reuses memory.
_OWNERS = (torch.Tensor, torch.nn.Parameter)


def _numbers(given: int | Iterable[int]) -> tuple[int, ...]:
    return (given,) if isinstance(given, int) else tuple(given)


# ---- operators with a schema -------------------------------------------------------------------------------------


def jax_op(
    name: str,
    fn: Callable[..., Any] | None = None,
    /,
    *,
    donate_argnums: int | Iterable[int] | None = None,
    reference: Callable[..., Any] | None = None,
    version: str | None = None,
    padding: str | None = None,
) -> Any:
    """Defines the operator `torch.ops.<namespace>.<name>` by a function on JAX arrays. Also a decorator.

    `name` is "namespace::name". Each parameter needs an annotation. `jax.Array`, `torch.Tensor`, optional ones, and
    lists and tuples of them are tensors; all other parameters are fixed values. Returns a [`JaxOp`]. A call of
    it donates the arguments in `donate_argnums`, as for [`custom_jax_kernel`].

    Raises ValueError for a name of another form and for annotations that are missing or unknown, and RuntimeError if
    another function has the name.
    """
    options: dict[str, Any] = {
        "donate_argnums": donate_argnums,
        "reference": reference,
        "version": version,
        "padding": padding,
    }
    return functools.partial(jax_op, name, **options) if fn is None else JaxOp(name, fn, **options)


_operators: dict[str, JaxOp] = {}


class JaxOp(_Called):
    """An operator that a function on JAX arrays defines; see [`jax_op`]."""

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        donate_argnums: int | Iterable[int] | None = None,
        reference: Callable[..., Any] | None = None,
        version: str | None = None,
        padding: str | None = None,
    ) -> None:
        if name.count("::") != 1 or not all(part.isidentifier() for part in name.split("::")):
            raise ValueError(f"the name of an operator is namespace::name, with one ::, not {name!r}")
        self._qualname = name
        self._namespace, self._name = name.split("::")
        self._init_fn = fn
        self.donate_argnums = _numbers(() if donate_argnums is None else donate_argnums)
        self._signature = Signature(fn)
        self._kernel = Kernel(name, fn, reference, version, padding)
        if name in _operators:
            raise RuntimeError(f"another function is the operator {name} already")
        self._lib = torch.library.Library(self._namespace, "FRAGMENT")
        operators.define(self._lib, self._name, self._signature.schema(), self._parse)
        self._opoverload = getattr(getattr(torch.ops, self._namespace), self._name).default
        # Whether the operator returns the flat list of the function's results.
        self._is_nested = self._signature.returns == "Tensor[]"
        _operators[name] = self
        functools.update_wrapper(self, inspect.unwrap(fn), updated=())

    def _taken(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Call, list[torch.Tensor]]:
        tensors, call = self._parse(self._signature.values(args, dict(kwargs)))
        return call, tensors

    def _parse(self, values: Sequence[Any]) -> tuple[list[Any], Any]:
        tensors, layout = self._signature.parse(values)
        return tensors, self._kernel.call(layout)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        values = self._signature.values(args, kwargs)
        results = _in_one_program(self._donating, values) if self.donate_argnums else self._opoverload(*values)
        if not self._is_nested:
            return results
        return _nested(self._parse(values)[1].structure, results, [0])

    def _donating(self, values: Sequence[Any]) -> Any:
        results = self._opoverload(*values)
        for argument in self.donate_argnums:
            _donate(values[argument], self._qualname)
        return results

    def register_autograd(
        self, backward: Callable[..., Any], /, *, setup_context: Callable[..., Any] | None = None
    ) -> None:
        """Gives the operator a gradient, as `torch.library.register_autograd` does."""
        _C.set_gradient(self._qualname, None)
        torch.library.register_autograd(self._qualname, backward, setup_context=setup_context, lib=self._lib)

    def register_vmap(self, func: Callable[..., Any] | None = None) -> Any:
        """Gives the operator another rule for batches, as `torch.library.register_vmap` does."""
        return torch.library.register_vmap(self._qualname, func, lib=self._lib)

    def __repr__(self) -> str:
        return f"<JaxOp {self._qualname}>"
