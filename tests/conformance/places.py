"""Where a program runs. The same program runs in each place, on the same inputs."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

WIDER = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
# For dtypes that only CUDA supports: wider ones that the CPU supports.
FOR_CPU = {
    **WIDER,
    torch.bool: torch.int64,
    torch.uint8: torch.float64,
    torch.int8: torch.float64,
    torch.int16: torch.float64,
    torch.int32: torch.float64,
    torch.int64: torch.float64,
    torch.complex32: torch.complex64,
}


@dataclasses.dataclass(frozen=True)
class Place:
    """A device, and the dtypes that replace others there."""

    device: str
    wider: Mapping[torch.dtype, torch.dtype] = dataclasses.field(default_factory=dict)
    kept: list[Any] | None = None
    """Holds the tensors put there, so that no program may donate their memory."""
    compiler: str | None = None
    """The backend of torch.compile for the tested function."""

    def prepared(self, called: Callable[..., Any], is_whole: bool = True) -> Callable[..., Any]:
        """The tested function or module in the form in which it is called; as a whole graph if PyTorch can do
        that."""
        if self.compiler is None:
            return called
        # PyTorch's lists may contain a builtin, for which Dynamo needs a caller.
        function = called if isinstance(called, nn.Module) else lambda *args, **kwargs: called(*args, **kwargs)
        torch.compiler.reset()
        compiled = torch.compile(function, backend=self.compiler, fullgraph=is_whole, dynamic=False)

        def call(*args: Any, **kwargs: Any) -> Any:
            # Without these, Dynamo makes no graph of results whose size depends on data, or of numbers that are read.
            options = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
            with torch._dynamo.config.patch(options):
                return compiled(*args, **kwargs)

        return call

    def put(self, value: Any) -> Any:
        """A copy of a value on the device, through lists, tuples, slices and dictionaries. Keeps strides and
        sharing."""
        copied = self._put(value, {})
        if self.kept is not None:
            self.kept.append(copied)
        return copied

    def _put(self, value: Any, seen: dict[int, Any]) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in seen:
                seen[id(value)] = self._put_tensor(value).requires_grad_(value.requires_grad)
            return seen[id(value)]
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return self.device
        if isinstance(value, torch.dtype):
            return self.wider.get(value, value)
        if isinstance(value, slice):
            return slice(*(self._put(each, seen) for each in (value.start, value.stop, value.step)))
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*(self._put(each, seen) for each in value))
        if isinstance(value, list | tuple):
            return type(value)(self._put(each, seen) for each in value)
        if isinstance(value, dict):
            return {key: self._put(each, seen) for key, each in value.items()}
        return value

    def _put_tensor(self, tensor: Tensor) -> Tensor:
        tensor = tensor.detach()
        if tensor.is_conj():
            return self._put_tensor(tensor.conj()).conj()
        if tensor.is_neg():
            return torch._neg_view(self._put_tensor(torch._neg_view(tensor)))
        dtype = self.wider.get(tensor.dtype, tensor.dtype)
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_contiguous():
            return tensor.to(device=self.device, dtype=dtype, copy=True)
        # Includes the memory between its elements, so that strides and overlaps are kept.
        length = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        if tensor.numel() == 0:
            return torch.empty_strided(tensor.shape, tensor.stride(), dtype=dtype, device=self.device)
        flat = tensor.as_strided((length,), (1,)).to(device=self.device, dtype=dtype, copy=True)
        return flat.as_strided(tensor.shape, tensor.stride(), 0)

    def put_module(self, module: nn.Module) -> nn.Module:
        """The module itself, moved there."""
        return module.to(self.device, *((torch.float64,) if self.wider else ()))

    def random_like(self, tensor: Tensor, seed: int) -> Tensor:
        """The same random numbers in each place."""
        drawn = torch.randn(
            tensor.shape,
            dtype=torch.complex64 if tensor.is_complex() else torch.float32,
            generator=torch.Generator().manual_seed(seed),
        )
        return drawn.to(tensor.device, tensor.dtype)

    def by_default(self, given: Any) -> Any:
        """A context in which operators without tensor arguments create their result there."""
        return nullcontext() if any(True for _ in tensors_of(given)) else torch.device(self.device)


CPU = Place("cpu")
PRECISE = Place("cpu", WIDER)
# Computes only shapes and dtypes.
META = Place("meta")
DEVICE = Place("tpu")
# Dynamo and AOTAutograd without a compiler: what they refuse here, they refuse everywhere.
TRACED = Place("cpu", compiler="aot_eager")


def widened(dtype: torch.dtype) -> Place:
    """The CPU, with a wider dtype for one that only CUDA supports."""
    return Place("cpu", {dtype: FOR_CPU.get(dtype, dtype)})


@dataclasses.dataclass(frozen=True)
class Trial:
    """One program of a case. The device must return the same as the CPU."""

    inputs: str
    """Its inputs, for the report of a failure."""
    program: Callable[[Place], Any]
    error: tuple[type[Exception], str] | None = None
    """The exception that it must raise, by type and regular expression."""


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in a value, through lists, tuples and dictionaries."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))


def describe(value: Any) -> str:
    """A short description of inputs: dtype, shape and unusual properties of tensors, the values of all else."""
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        strides = "" if value.layout != torch.strided or value.is_contiguous() else f" strides {value.stride()}"
        layout = "" if value.layout == torch.strided else f" {value.layout}"
        return f"{dtype}{list(value.shape)}{strides}{layout}"
    if isinstance(value, list | tuple):
        inside = ", ".join(describe(each) for each in value)
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    if isinstance(value, dict):
        return ", ".join(f"{key}={describe(each)}" for key, each in value.items())
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
