"""Memory allocation, and prims, the operators of PyTorch's reference implementations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch._prims_common import compute_elementwise_output_logical_to_physical_perm, suggest_memory_format

from torchtpu.operators.registry import EXTRA, find, register

aten = torch.ops.aten


# ---- memory: an uninitialized tensor may have any values, so it is zeros ----------------------------------------


@register("aten::empty.memory_format")
def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), device="meta")


@register("aten::_efficientzerotensor")
def _efficientzerotensor(size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty(size, dtype=dtype)


@register("aten::empty_strided")
def _empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    return _empty(size, dtype=options.get("dtype"))


@register("aten::new_empty")
def _new_empty(self: Tensor, size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty(size, dtype=dtype or self.dtype)


@register("aten::new_empty_strided")
def _new_empty_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    return _empty(size, dtype=dtype or self.dtype)


@register("aten::empty_like")
def _empty_like(self: Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty(self.shape, dtype=dtype or self.dtype)


@register("aten::resize")
def _resize(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    """A copy of `self` in its order in memory, whose elements then have another size."""
    if memory_format is None and list(self.shape) == list(size):
        return aten.clone.default(self)
    order, _ = compute_elementwise_output_logical_to_physical_perm(self)
    flat = aten.reshape.default(aten.permute.default(self, order), [-1])
    missing = math.prod(size) - self.numel()
    if missing > 0:
        flat = aten.constant_pad_nd.default(flat, [0, missing], _new_element(self.dtype))
    else:
        flat = flat[: math.prod(size)]
    if memory_format in (torch.channels_last, torch.channels_last_3d):
        batch, channels, *others = size
        return aten.permute.default(
            aten.reshape.default(flat, [batch, *others, channels]), [0, -1, *range(1, len(size) - 1)]
        )
    return aten.reshape.default(flat, size)


def _new_element(dtype: torch.dtype) -> float:
    """An element of memory that is new, as eager fills it."""
    if not (torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory):  # type: ignore[attr-defined]
        return 0
    if dtype == torch.bool:
        return 1
    return math.nan if dtype.is_floating_point or dtype.is_complex else torch.iinfo(dtype).max


@register("aten::resize_as")
def _resize_as(self: Tensor, the_template: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    if memory_format == torch.preserve_format:
        memory_format = suggest_memory_format(the_template)
    return _resize(self, the_template.shape, memory_format=memory_format)


@register("aten::copy")
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if src.dtype != self.dtype:
        src = aten._to_copy.default(src, dtype=self.dtype)
    return src if src.shape == self.shape else aten.expand.default(src, self.shape)


# ---- prims: the operators of PyTorch's reference implementations -----------------------------------


def _same_name(name: str, overload: str = "default", prim: str | None = None) -> None:
    operator, target = find(f"prims::{prim or name}"), find(f"aten::{name}.{overload}")
    if operator is not None and target is not None:
        EXTRA[operator] = target


_SAME = """
    abs acos acosh asin asinh atan atanh ceil conj_physical cos cosh digamma erf erfc erfinv exp exp2 expm1 floor
    imag isfinite lgamma log log10 log1p log2 neg real reciprocal round rsqrt sign signbit sin sinh sqrt tan tanh
    trunc bitwise_not atan2 complex copysign fmax fmin fmod frexp gcd hypot igamma igammac maximum minimum nextafter
    polar zeta
"""
_SAME_WITH_OVERLOAD_TENSOR = """
    add bitwise_and bitwise_or bitwise_xor eq ge gt le lt mul ne remainder sub
"""

for _name in _SAME.split():
    _same_name(_name)
for _name in _SAME_WITH_OVERLOAD_TENSOR.split():
    _same_name(_name, "Tensor")
_same_name("special_bessel_j0", prim="bessel_j0")
_same_name("special_bessel_j1", prim="bessel_j1")
_same_name("i0", prim="bessel_i0")
_same_name("special_i1", prim="bessel_i1")
_same_name("special_i0e", prim="bessel_i0e")
_same_name("special_i1e", prim="bessel_i1e")
_same_name("special_erfcx", prim="erfcx")
_same_name("special_ndtri", prim="ndtri")
_same_name("special_log_ndtr", prim="log_ndtr")
_same_name("special_spherical_bessel_j0", prim="spherical_bessel_j0")
_same_name("copysign", "Tensor")
_same_name("fmod", "Tensor")
_same_name("pow", "Tensor_Tensor")
_same_name("bitwise_left_shift", "Tensor", "shift_left")
_same_name("bitwise_right_shift", "Tensor", "shift_right_arithmetic")
_same_name("flip", prim="rev")
_same_name("permute", prim="transpose")
_same_name("view", prim="reshape")
_same_name("as_strided")


@register("prims::div")
def _prims_div(a: Any, b: Any) -> Tensor:
    # The prim keeps integers and rounds towards zero.
    dtype = torch.result_type(a, b)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.true_divide(a, b)
    return aten.div.Tensor_mode(a, b, rounding_mode="trunc")


@register("prims::where")
def _prims_where(pred: Tensor, a: Any, b: Any) -> Tensor:
    dtypes = [each.dtype for each in (a, b) if isinstance(each, Tensor)]
    dtype = dtypes[0] if dtypes else torch.result_type(a, b)
    a, b = (
        each if isinstance(each, Tensor) else aten.full.default([], each, dtype=dtype, device="meta") for each in (a, b)
    )
    return aten.where.self(pred, a, b)


@register("prims::convert_element_type")
def _convert_element_type(a: Tensor, dtype: torch.dtype) -> Tensor:
    return aten._to_copy.default(a, dtype=dtype)


@register("prims::device_put")
def _device_put(a: Tensor, device: torch.device, non_blocking: bool = False) -> Tensor:
    return aten.alias.default(a)


@register("prims::broadcast_in_dim")
def _broadcast_in_dim(a: Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Tensor:
    spread = [1] * len(shape)
    for source, dimension in enumerate(broadcast_dimensions):
        spread[dimension] = a.shape[source]
    return aten.expand.default(aten.view.default(a, spread), shape)


@register("prims::squeeze")
def _prims_squeeze(a: Tensor, dimensions: Sequence[int]) -> Tensor:
    dropped = {dimension % a.dim() for dimension in dimensions}
    return aten.view.default(a, [size for dimension, size in enumerate(a.shape) if dimension not in dropped])


@register("prims::collapse_view", "prims::collapse")
def _collapse(a: Tensor, start: int, end: int) -> Tensor:
    return aten.view.default(a, [*a.shape[:start], math.prod(a.shape[start : end + 1]), *a.shape[end + 1 :]])


@register("prims::split_dim")
def _split_dim(a: Tensor, dim: int, outer_length: int) -> Tensor:
    return aten.view.default(a, [*a.shape[:dim], outer_length, a.shape[dim] // outer_length, *a.shape[dim + 1 :]])


@register("prims::slice")
def _prims_slice(
    a: Tensor, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Tensor:
    for dimension, (start, limit) in enumerate(zip(start_indices, limit_indices, strict=True)):
        step = 1 if strides is None else strides[dimension]
        if (start, limit, step) != (0, a.shape[dimension], 1):
            a = aten.slice.Tensor(a, dimension, start, limit, step)
    return a


@register("prims::cat")
def _prims_cat(tensors: Sequence[Tensor], dim: int) -> Tensor:
    return aten.cat.default(tensors, dim)


@register("prims::iota")
def _iota(
    length: int, *, start: int, step: int, dtype: torch.dtype, device: torch.device, requires_grad: bool
) -> Tensor:
    return aten.arange.start_step(start, start + length * step, step, dtype=dtype, device=device)


@register("prims::scalar_tensor")
def _scalar_tensor(s: Any, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    return aten.full.default([], s, dtype=dtype or torch.tensor(s).dtype, device="meta")


@register("prims::sum")
def _prims_sum(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    return aten.sum.dim_IntList(inp, dims, dtype=output_dtype or inp.dtype)


@register("prims::prod")
def _prims_prod(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    for dimension in sorted(range(inp.dim()) if dims is None else dims, reverse=True):
        inp = aten.prod.dim_int(inp, dimension, dtype=output_dtype or inp.dtype)
    return inp


@register("prims::amax")
def _prims_amax(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    return aten.amax.default(inp, list(range(inp.dim())) if dims is None else dims)


@register("prims::amin")
def _prims_amin(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    return aten.amin.default(inp, list(range(inp.dim())) if dims is None else dims)


@register("prims::var")
def _prims_var(
    inp: Tensor, dims: Sequence[int] | None, correction: float = 1, *, output_dtype: torch.dtype | None = None
) -> Tensor:
    return aten.var.correction(inp, dims, correction=correction)
