"""The programs of the cases of jagged nested tensors, from PyTorch's njt_op_db."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.testing._internal.opinfo.definitions.nested import njt_op_db

from tests.conformance.operators import evenly, gradients, samples_of, tolerance
from tests.conformance.places import Place, Trial, describe, tensors_of
from tests.seeds import seed_everything

# The dtype of PyTorch's tests.
DTYPE = torch.float32


def jagged_operators() -> Iterator[Jagged]:
    return (Jagged(info) for info in njt_op_db if info.supports_njt)


class Jagged:
    """An entry of njt_op_db: an operator of op_db with nested tensors of the jagged layout."""

    def __init__(self, info: OpInfo) -> None:
        self.info = info
        self.name = f"jagged.{info.full_name}"

    def directions(self, dtype: torch.dtype) -> tuple[str, ...]:
        if dtype != DTYPE or dtype not in self.info.supported_dtypes("cpu"):
            return ()
        differentiates = self.info.supports_autograd and dtype in self.info.supported_backward_dtypes("cpu")
        return ("forward", "backward") if differentiates else ("forward",)

    def is_for_cuda_only(self, dtype: torch.dtype) -> bool:
        return False

    def tolerance(self, dtype: torch.dtype) -> tuple[float, float] | None:
        return tolerance(self.info.decorators, dtype)

    def trials(self, dtype: torch.dtype, direction: str, count: int, seed: int) -> list[Trial]:
        seed_everything(seed)
        samples = samples_of(self.info.sample_inputs_func, self.info, "cpu", dtype, direction == "backward")
        make = getattr(self, f"_{direction}")
        return [Trial(f"{sample.name}: {describe(sample.input)}", make(sample)) for sample in evenly(samples, count)]

    def _called(self, sample: SampleInput, place: Place) -> tuple[list[Any], Any]:
        """The arguments on a device, and the result of plain tensors."""
        given = place.put((sample.input, sample.args, sample.kwargs))
        input, args, kwargs = given
        result = place.prepared(self.info.op)(input, *args, **kwargs)
        return list(given), _rows(sample.output_process_fn_grad(result))

    def _forward(self, sample: SampleInput) -> Callable[[Place], Any]:
        return lambda place: self._called(sample, place)[1]

    def _backward(self, sample: SampleInput) -> Callable[[Place], Any]:
        def program(place: Place) -> Any:
            given, result = self._called(sample, place)
            inputs = {id(tensor): tensor for tensor in tensors_of(given) if tensor.requires_grad}
            results = [each for each in tensors_of(result) if each.requires_grad]
            return _rows(gradients(results, list(inputs.values()), place))

        return program


def _rows(value: Any) -> Any:
    """Nested tensors as lists of their rows, through lists and tuples."""
    if isinstance(value, Tensor):
        return list(value.unbind()) if value.is_nested else value
    return [_rows(each) for each in value] if isinstance(value, list | tuple) else value
