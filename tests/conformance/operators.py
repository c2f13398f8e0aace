"""The programs of the cases of operators, from PyTorch's op_db and foreach_op_db."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal import common_methods_invocations as databases
from torch.testing._internal.common_device_type import toleranceOverride
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import SEED as PYTORCHS_SEED
from torch.testing._internal.opinfo.core import DecorateInfo, OpInfo, SampleInput
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.conformance import mixed
from tests.conformance.cases import FINITE_DIFFERENCES
from tests.conformance.exceptions import (
    CHOOSES_AMONG_EQUALS,
    IN_ANY_ORDER,
    TAKES_CPU_TENSORS,
    UNIQUE_UP_TO_PHASE,
    is_random,
)
from tests.conformance.places import Place, Trial, describe, tensors_of
from tests.conformance.refusals import cast, is_refused, refusal, source_of
from tests.seeds import seed_everything

# All versions of PyTorch have these lists; foreach_op_db, which is all of them, is new.
FOREACH_KINDS = ("unary", "binary", "pointwise", "reduce", "other")
FOREACH = [info for kind in FOREACH_KINDS for info in getattr(databases, f"foreach_{kind}_op_db")]
# Samples are drawn evenly from the first of them, because some operators have thousands.
CONSIDERED = 200
# Directions that do not depend on the dtype's arithmetic only run for some dtypes.
ONLY_FOR = {
    "backward": (torch.float32,),
    "gradgrad": (torch.float32,),
    "strided": (torch.float32, torch.int64, torch.complex64),
    "out": (torch.float32, torch.int64),
    "inplace": (torch.float32, torch.int64),
    "sparse": (torch.float32, torch.int64, torch.complex64),
    "errors": (torch.float32,),
    "mixed": (torch.float32,),
    "gradcheck": (torch.float64,),
    "gradgradcheck": (torch.float64,),
}
# The layouts of sparse tensors, and PyTorch's attribute for operators that support them.
LAYOUTS = {
    "coo": "supports_sparse",
    "csr": "supports_sparse_csr",
    "csc": "supports_sparse_csc",
    "bsr": "supports_sparse_bsr",
    "bsc": "supports_sparse_bsc",
}
LESS_THAN_DOUBLE = {torch.bfloat16, torch.float16, torch.float32, torch.complex32, torch.complex64}
# Finite differences run each sample dozens of times, so they use this many times fewer samples.
SHARE_OF_DIFFERENCES = 4
DIFFERENTIATING = ("backward", "gradgrad", "gradcheck", "gradgradcheck")


def operators() -> Iterator[Operator]:
    return (Operator(info) for info in (*op_db, *FOREACH))


class Operator:
    """An entry of op_db."""

    def __init__(self, info: OpInfo) -> None:
        self.info = info
        self.name = f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name
        self.is_foreach = info in FOREACH

    def directions(self, dtype: torch.dtype) -> tuple[str, ...]:
        info = self.info
        if self.is_for_cuda_only(dtype):
            differentiates = info.supports_autograd and dtype in info.supported_backward_dtypes("cuda")
            return ("forward", "backward") if differentiates else ("forward",)
        runs = dtype in info.supported_dtypes("cpu")
        differentiates = info.supports_autograd and dtype in info.supported_backward_dtypes("cpu")
        # A foreach operator has the formulas of its element operator.
        checks = differentiates and not is_random(self.name) and not self.is_foreach
        possible = {
            "forward": runs,
            "strided": runs and not self.is_foreach,
            "backward": differentiates,
            "gradgrad": differentiates and info.supports_gradgrad,
            "out": runs and info.supports_out and not self.is_foreach,
            "inplace": runs and info.get_inplace() is not None,
            "sparse": runs and any(getattr(info, supports) for supports in LAYOUTS.values()),
            "errors": info.error_inputs_func is not None,
            "mixed": runs and not self.is_foreach,
            "refused": is_refused(info, dtype),
            "gradcheck": checks,
            "gradgradcheck": checks and info.supports_gradgrad,
        }
        return tuple(
            direction
            for direction, is_possible in possible.items()
            if is_possible and dtype in ONLY_FOR.get(direction, (dtype,))
        )

    def is_for_cuda_only(self, dtype: torch.dtype) -> bool:
        return dtype in self.info.supported_dtypes("cuda") - self.info.supported_dtypes("cpu")

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float] | None:
        return tolerance(self.info.decorators, dtype)

    def trials(self, dtype: torch.dtype, direction: str, count: int, seed: int) -> list[Trial]:
        seed_everything(seed)
        if direction == "errors":
            return [
                Trial(
                    _describe(error.sample_input),
                    self._forward(error.sample_input),
                    (error.error_type, error.error_regex),
                )
                for error in evenly(samples_of(self.info.error_inputs_func, self.info, "cpu"), count)
            ]
        if direction == "refused":
            source = source_of(self.info)
            samples = [
                cast(each, source, dtype)
                for each in evenly(samples_of(self.info.sample_inputs_func, self.info, "cpu", source, False), count)
            ]
            programs = [(_describe(sample), refusal(self._forward(sample))) for sample in samples]
            return [Trial(inputs, program) for inputs, program in programs if program]
        if direction == "mixed":
            samples = samples_of(self.info.sample_inputs_func, self.info, "cpu", dtype, False)
            variants = (each for sample in evenly(samples, count) for each in mixed.variants(sample, dtype))
            programs = ((_describe(sample), mixed.judged(self._forward(sample))) for sample in evenly(variants, count))
            return [Trial(inputs, program) for inputs, program in programs if program]
        if direction == "sparse":
            return [Trial(_describe(sample), self._forward(sample)) for sample in self._sparse_samples(dtype, count)]
        if direction in FINITE_DIFFERENCES:
            count = max(1, count // SHARE_OF_DIFFERENCES)
        make = getattr(self, f"_{direction}")
        samples = samples_of(self.info.sample_inputs_func, self.info, "cpu", dtype, direction in DIFFERENTIATING)
        return [Trial(_describe(sample), make(sample)) for sample in evenly(samples, count)]

    def _sparse_samples(self, dtype: torch.dtype, count: int) -> Iterator[SampleInput]:
        """For each supported layout, PyTorch's samples, or dense ones converted to it."""
        for layout, supports in LAYOUTS.items():
            if not getattr(self.info, supports):
                continue
            try:
                yield from evenly(getattr(self.info, f"sample_inputs_sparse_{layout}")("cpu", dtype), count)
            except NotImplementedError:
                samples = samples_of(self.info.sample_inputs_func, self.info, "cpu", dtype, False)
                yield from evenly(filter(None, (_made_sparse(sample, layout) for sample in samples)), count)

    def _put(self, sample: SampleInput, place: Place) -> tuple[Any, Any, dict[str, Any]]:
        if self.name in TAKES_CPU_TENSORS:
            return place.put(sample.input), sample.args, sample.kwargs
        return place.put((sample.input, sample.args, sample.kwargs))

    def _forward(self, sample: SampleInput) -> Callable[[Place], Any]:
        def program(place: Place) -> Any:
            input, args, kwargs = self._put(sample, place)
            with place.by_default((input, args, kwargs)):
                result = place.prepared(self.info.op)(input, *args, **kwargs)
            result = self._comparable(sample, (input, args, kwargs), result)
            # A foreach operator that writes to its argument returns nothing.
            return input if result is None and self.is_foreach else result

        return program

    def _comparable(self, sample: SampleInput, given: tuple[Any, Any, dict[str, Any]], result: Any) -> Any:
        if self.name in IN_ANY_ORDER:
            result = _ordered(result)
        input, args, kwargs = given
        if self.name in CHOOSES_AMONG_EQUALS and not kwargs.get("stable"):
            position = CHOOSES_AMONG_EQUALS[self.name]
            dim = kwargs.get("dim", args[position] if len(args) > position else -1)
            result = _pointed_to(input, result, dim)
        return sample.output_process_fn_grad(result) if self.name in UNIQUE_UP_TO_PHASE else result

    def _strided(self, sample: SampleInput) -> Callable[[Place], Any]:
        return self._forward(sample.noncontiguous())

    def _differentiable(self, sample: SampleInput, place: Place) -> tuple[list[Tensor], list[Tensor]]:
        """The results that have a gradient, and the inputs with gradients."""
        input, args, kwargs = self._put(sample, place)
        results = self.info.gradcheck_wrapper(place.prepared(self.info.op), input, *args, **kwargs)
        results = sample.output_process_fn_grad(_ordered(results) if self.name in IN_ANY_ORDER else results)
        inputs = {id(tensor): tensor for tensor in tensors_of((input, args, kwargs)) if tensor.requires_grad}
        return [result for result in tensors_of(results) if result.requires_grad], list(inputs.values())

    def _backward(self, sample: SampleInput) -> Callable[[Place], Any]:
        def program(place: Place) -> Any:
            results, inputs = self._differentiable(sample, place)
            return gradients(results, inputs, place)

        return program

    def _gradgrad(self, sample: SampleInput) -> Callable[[Place], Any]:
        def program(place: Place) -> Any:
            results, inputs = self._differentiable(sample, place)
            first = gradients(results, inputs, place, create_graph=True)
            return gradients([each for each in first if each is not None and each.requires_grad], inputs, place)

        return program

    def _gradcheck(self, sample: SampleInput) -> Callable[[Place], Any]:
        return self._differences(sample, torch.autograd.gradcheck)

    def _gradgradcheck(self, sample: SampleInput) -> Callable[[Place], Any]:
        return self._differences(sample, torch.autograd.gradgradcheck)

    def _differences(self, sample: SampleInput, check: Callable[..., bool]) -> Callable[[Place], Any]:
        """Gradients against finite differences."""

        def program(place: Place) -> Any:
            leaves, structure = tree_flatten(self._put(sample, place))
            inputs = [leaf for leaf in leaves if isinstance(leaf, Tensor) and leaf.requires_grad]

            def function(*given: Tensor) -> tuple[Tensor, ...]:
                replaced = {id(old): new for old, new in zip(inputs, given, strict=True)}
                filled = [replaced.get(id(leaf), leaf) for leaf in leaves]
                input, args, kwargs = tree_unflatten(filled, structure)
                result = self.info.gradcheck_wrapper(self.info.op, input, *args, **kwargs)
                results = tuple(tensors_of(sample.output_process_fn_grad(result)))
                if {each.dtype for each in results} & LESS_THAN_DOUBLE:
                    raise TypeError("finite differences say nothing of results in less than double precision")
                return results

            return check(function, inputs, nondet_tol=self.info.gradcheck_nondet_tol, fast_mode=True)

        return program

    def _inplace(self, sample: SampleInput) -> Callable[[Place], Any]:
        """Writes to the input, and to every other element of a larger tensor."""

        def program(place: Place) -> Any:
            called = place.prepared(self.info.get_inplace())
            input, args, kwargs = self._put(sample, place)
            returned = called(input, *args, **kwargs)
            if not isinstance(input, Tensor) or place.compiler is not None:
                return returned, input
            before, args, kwargs = self._put(sample, place)
            part = _with_gaps(before)
            part.copy_(before)
            called(part, *args, **kwargs)
            if place.device == "cpu" and not is_random(self.name):
                # Some CPU kernels assume that their input is contiguous.
                torch.testing.assert_close(part, input, equal_nan=True)
            return returned, input, part, _gaps(part)

        return program

    def _out(self, sample: SampleInput) -> Callable[[Place], Any]:
        """Writes to tensors of the right size with other strides, to parts of larger ones, and to empty ones."""

        def program(place: Place) -> Any:
            input, args, kwargs = self._put(sample, place)
            with place.by_default((input, args, kwargs)):
                expected = self.info.op(input, *args, **kwargs)
                strided, parts = _map(_transposed, expected), _map(_with_gaps, expected)
                empty = _map(lambda result: torch.empty(0, dtype=result.dtype, device=result.device), expected)
                returned = [self.info.op(input, *args, **kwargs, out=out) for out in (strided, parts, empty)]
            is_same = [
                one is other
                for result, out in zip(returned, (strided, parts, empty), strict=True)
                for one, other in zip(tensors_of(result), tensors_of(out), strict=True)
            ]
            # The CPU gives empty parts other strides.
            with_strides = [*tensors_of(strided), *(part for part in tensors_of(parts) if part.numel() > 0)]
            strides = [tensor.stride() for tensor in with_strides]
            results = [self._comparable(sample, (input, args, kwargs), result) for result in returned]
            if place.device == "cpu" and not is_random(self.name):
                # Some CPU kernels assume that their output is contiguous.
                expected = self._comparable(sample, (input, args, kwargs), expected)
                for result in results:
                    torch.testing.assert_close(list(tensors_of(result)), list(tensors_of(expected)), equal_nan=True)
            return results, is_same, strides, [_gaps(part) for part in tensors_of(parts)]

        return program


def gradients(
    results: list[Tensor], inputs: list[Tensor], place: Place, create_graph: bool = False
) -> tuple[Tensor | None, ...]:
    """The gradients of the inputs for results weighted with random numbers."""
    if not results:
        return ()
    weights = [place.random_like(result, seed) for seed, result in enumerate(results)]
    return torch.autograd.grad(results, inputs, weights, create_graph=create_graph, allow_unused=True)


def tolerance(decorators: Iterable[Any], dtype: torch.dtype) -> tuple[float, float] | None:
    """The largest tolerance of PyTorch's own tests of an entry."""
    given = [
        decorator.d[dtype]
        for info in decorators
        if isinstance(info, DecorateInfo) and info.device_type in (None, "cpu")
        for decorator in info.decorators
        if isinstance(decorator, toleranceOverride) and dtype in decorator.d
    ]
    return (max(each.atol for each in given), max(each.rtol for each in given)) if given else None


def samples_of(function: Callable[..., Iterable[Any]], *arguments: Any, **options: Any) -> Iterator[Any]:
    """What a function of an OpInfo draws, such as `info.sample_inputs_func`, with PyTorch's seed before each sample.

    `info.sample_inputs` draws the same, but looks for a unittest on the stack, and formats the stack for each kind of
    accelerator that this torch could have. Under pytest that takes more time than the samples.
    """
    samples = iter(function(*arguments, **options))
    while True:
        seed_everything(PYTORCHS_SEED)
        try:
            sample = next(samples)
        except StopIteration:
            return
        yield sample


def evenly(values: Any, count: int) -> list[Any]:
    """Up to `count` of the values, spread evenly, including the first."""
    considered = list(itertools.islice(values, CONSIDERED))
    if len(considered) <= count:
        return considered
    return [considered[position * len(considered) // count] for position in range(count)]


def _pointed_to(given: Tensor, result: Any, dim: int) -> Any:
    """The result with each index replaced by the element at that index."""
    if isinstance(result, tuple):
        return result[0], _pointed_to(given, result[1], dim)
    if result.dtype != torch.int64:
        return result
    return given.gather(dim, result if result.dim() == given.dim() else result.unsqueeze(dim))


def _ordered(result: Any) -> Any:
    """Eigenvalues sorted by real and then by imaginary parts, with their eigenvectors."""
    values, *vectors = result if isinstance(result, tuple) else (result,)
    parts = torch.view_as_real(values.detach().cpu()).to(torch.float64)
    scale = parts.abs().amax((-1, -2), keepdim=True).clamp(min=1e-30) if parts.numel() else 1
    # Conjugate pairs have equal real parts, up to rounding.
    keys = (parts / scale * 1e4).round() @ torch.tensor([1e6, 1.0], dtype=torch.float64)
    order = keys.argsort(dim=-1, stable=True).to(values.device)
    ordered = [values.gather(-1, order)]
    ordered += [each.gather(-1, order.unsqueeze(-2).expand(each.shape)) for each in vectors]
    return tuple(ordered) if vectors else ordered[0]


def _made_sparse(sample: SampleInput, layout: str) -> SampleInput | None:
    """The sample with a sparse input, if the layout allows it."""
    input = sample.input
    if not isinstance(input, Tensor) or input.layout != torch.strided or (layout != "coo" and input.dim() != 2):
        return None
    if layout == "coo":
        input = input.to_sparse()
    else:
        input = getattr(input, f"to_sparse_{layout}")(*([(1, 1)] if layout.startswith("b") else []))
    return SampleInput(input, args=sample.args, kwargs=sample.kwargs)


def _transposed(result: Tensor) -> Tensor:
    """An output whose last two dimensions are transposed in memory."""
    if result.dim() < 2:
        return result.new_empty(result.shape)
    return result.new_empty(result.mT.shape).mT


def _with_gaps(tensor: Tensor) -> Tensor:
    """Every other element of a new tensor of zeros, with the last two dimensions transposed in memory."""
    is_matrix = tensor.dim() >= 2
    part = tensor.new_zeros((*(tensor.mT if is_matrix else tensor).shape, 2))[..., 0]
    return part.mT if is_matrix else part


def _gaps(part: Tensor) -> Tensor:
    """The elements beside those that `_with_gaps` gives. A result of another size has none."""
    return part._base[..., 1] if part._base is not None and part.numel() * 2 == part._base.numel() else part


def _map(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    return function(value) if isinstance(value, Tensor) else tuple(_map(function, each) for each in value)


def _describe(sample: SampleInput) -> str:
    parts = (sample.input, *sample.args, sample.kwargs) if sample.kwargs else (sample.input, *sample.args)
    return ", ".join(describe(part) for part in parts)
