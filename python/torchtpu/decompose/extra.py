"""Decompositions that PyTorch lacks, or writes in a form that the table should not have to know.

Each function takes the arguments of its operator and calls operators that have rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtpu.decompose import compressed, histograms

aten = torch.ops.aten

EXTRA: dict[Any, Callable[..., Any]] = {}


def _find(name: str) -> Any:
    """The operator of a name such as "prims::rev" or "aten::empty.memory_format", if this torch has it."""
    namespace, _, rest = name.partition("::")
    packet_name, _, overload = rest.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    return getattr(packet, overload or "default", None)


def _register(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            operator = _find(name)
            if operator is not None:
                EXTRA[operator] = function
        return function

    return register


# ---- memory: an uninitialised tensor may hold anything, so it holds zeros ----------------------------------------


@_register("aten::empty.memory_format")
def _empty(size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return aten.full.default(size, 0, dtype=dtype or torch.get_default_dtype(), device="meta")


@_register("aten::_efficientzerotensor")
def _efficientzerotensor(size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty(size, dtype=dtype)


@_register("aten::empty_strided")
def _empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    return _empty(size, dtype=options.get("dtype"))


@_register("aten::new_empty")
def _new_empty(self: Tensor, size: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty(size, dtype=dtype or self.dtype)


@_register("aten::new_empty_strided")
def _new_empty_strided(
    self: Tensor, size: Sequence[int], stride: Sequence[int], *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    return _empty(size, dtype=dtype or self.dtype)


@_register("aten::empty_like")
def _empty_like(self: Tensor, *, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
    return _empty(self.shape, dtype=dtype or self.dtype)


@_register("aten::resize")
def _resize(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    flat, length = aten.reshape.default(self, [-1]), math.prod(size)
    missing = length - self.numel()
    flat = aten.constant_pad_nd.default(flat, [0, missing]) if missing > 0 else flat[:length]
    return aten.reshape.default(flat, size)


@_register("aten::resize_as")
def _resize_as(self: Tensor, the_template: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    return _resize(self, the_template.shape)


@_register("aten::copy")
def _copy(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    if src.dtype != self.dtype:
        src = aten._to_copy.default(src, dtype=self.dtype)
    return src if src.shape == self.shape else aten.expand.default(src, self.shape)


# ---- prims: the operators in which PyTorch writes its reference implementations -----------------------------------


def _same_name(name: str, overload: str = "default", prim: str | None = None) -> None:
    operator, target = _find(f"prims::{prim or name}"), _find(f"aten::{name}.{overload}")
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


@_register("prims::div")
def _prims_div(a: Any, b: Any) -> Tensor:
    # The prim keeps integers, rounding towards zero.
    dtype = torch.result_type(a, b)
    if dtype.is_floating_point or dtype.is_complex:
        return torch.true_divide(a, b)
    return aten.div.Tensor_mode(a, b, rounding_mode="trunc")


@_register("prims::where")
def _prims_where(pred: Tensor, a: Any, b: Any) -> Tensor:
    dtypes = [each.dtype for each in (a, b) if isinstance(each, Tensor)]
    dtype = dtypes[0] if dtypes else torch.result_type(a, b)
    a, b = (
        each if isinstance(each, Tensor) else aten.full.default([], each, dtype=dtype, device="meta") for each in (a, b)
    )
    return aten.where.self(pred, a, b)


@_register("prims::convert_element_type")
def _convert_element_type(a: Tensor, dtype: torch.dtype) -> Tensor:
    return aten._to_copy.default(a, dtype=dtype)


@_register("prims::device_put")
def _device_put(a: Tensor, device: torch.device, non_blocking: bool = False) -> Tensor:
    return aten.alias.default(a)


@_register("prims::broadcast_in_dim")
def _broadcast_in_dim(a: Tensor, shape: Sequence[int], broadcast_dimensions: Sequence[int]) -> Tensor:
    spread = [1] * len(shape)
    for source, dimension in enumerate(broadcast_dimensions):
        spread[dimension] = a.shape[source]
    return aten.expand.default(aten.view.default(a, spread), shape)


@_register("prims::squeeze")
def _prims_squeeze(a: Tensor, dimensions: Sequence[int]) -> Tensor:
    dropped = {dimension % a.dim() for dimension in dimensions}
    return aten.view.default(a, [size for dimension, size in enumerate(a.shape) if dimension not in dropped])


@_register("prims::collapse_view", "prims::collapse")
def _collapse(a: Tensor, start: int, end: int) -> Tensor:
    return aten.view.default(a, [*a.shape[:start], math.prod(a.shape[start : end + 1]), *a.shape[end + 1 :]])


@_register("prims::split_dim")
def _split_dim(a: Tensor, dim: int, outer_length: int) -> Tensor:
    return aten.view.default(a, [*a.shape[:dim], outer_length, a.shape[dim] // outer_length, *a.shape[dim + 1 :]])


@_register("prims::slice")
def _prims_slice(
    a: Tensor, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Tensor:
    for dimension, (start, limit) in enumerate(zip(start_indices, limit_indices, strict=True)):
        step = 1 if strides is None else strides[dimension]
        if (start, limit, step) != (0, a.shape[dimension], 1):
            a = aten.slice.Tensor(a, dimension, start, limit, step)
    return a


@_register("prims::cat")
def _prims_cat(tensors: Sequence[Tensor], dim: int) -> Tensor:
    return aten.cat.default(tensors, dim)


@_register("prims::iota")
def _iota(
    length: int, *, start: int, step: int, dtype: torch.dtype, device: torch.device, requires_grad: bool
) -> Tensor:
    return aten.arange.start_step(start, start + length * step, step, dtype=dtype, device=device)


@_register("prims::scalar_tensor")
def _scalar_tensor(s: Any, *, dtype: torch.dtype | None = None, device: torch.device | None = None) -> Tensor:
    return aten.full.default([], s, dtype=dtype or torch.tensor(s).dtype, device="meta")


@_register("prims::sum")
def _prims_sum(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    return aten.sum.dim_IntList(inp, dims, dtype=output_dtype or inp.dtype)


@_register("prims::prod")
def _prims_prod(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    for dimension in sorted(range(inp.dim()) if dims is None else dims, reverse=True):
        inp = aten.prod.dim_int(inp, dimension, dtype=output_dtype or inp.dtype)
    return inp


@_register("prims::amax")
def _prims_amax(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    return aten.amax.default(inp, list(range(inp.dim())) if dims is None else dims)


@_register("prims::amin")
def _prims_amin(inp: Tensor, dims: Sequence[int] | None, *, output_dtype: torch.dtype | None = None) -> Tensor:
    return aten.amin.default(inp, list(range(inp.dim())) if dims is None else dims)


@_register("prims::var")
def _prims_var(
    inp: Tensor, dims: Sequence[int] | None, correction: float = 1, *, output_dtype: torch.dtype | None = None
) -> Tensor:
    return aten.var.correction(inp, dims, correction=correction)


# ---- what PyTorch only has kernels for ----------------------------------------------------------------------------


@_register("aten::put")
def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = aten.index_put.default(
        aten.view.default(self, [-1]), [aten.view.default(index, [-1])], aten.view.default(source, [-1]), accumulate
    )
    return aten.view.default(flat, self.shape)


@_register("aten::_foreach_zero")
def _foreach_zero(self: Sequence[Tensor]) -> list[Tensor]:
    return [aten.full.default(each.shape, 0, dtype=each.dtype, device="meta") for each in self]


@_register("aten::_amp_foreach_non_finite_check_and_unscale")
def _unscale(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> tuple[list[Tensor], Tensor]:
    unscaled = []
    for each in self:
        finite = aten.logical_not.default(aten.isinf.default(each) | aten.isnan.default(each))
        found_inf = torch.where(finite.all(), found_inf, 1.0)
        unscaled.append((each * inv_scale).to(each.dtype))
    return unscaled, found_inf


@_register("aten::_amp_update_scale")
def _update_scale(
    self: Tensor,
    growth_tracker: Tensor,
    found_inf: Tensor,
    scale_growth_factor: float,
    scale_backoff_factor: float,
    growth_interval: int,
) -> tuple[Tensor, Tensor]:
    found = found_inf > 0
    steps = torch.where(found, 0, growth_tracker + 1)
    due = steps == growth_interval
    grown = self * scale_growth_factor
    kept = torch.where(due & torch.isfinite(grown), grown, self)
    scale = torch.where(found, self * scale_backoff_factor, kept)
    return scale, torch.where(due, 0, steps).to(growth_tracker.dtype)


_register("aten::histogram.bin_ct")(histograms.histogram_with_count)
_register("aten::histogram.bins_tensor")(histograms.histogram_with_edges)
_register("aten::_histogramdd_bin_edges")(histograms.bin_edges)
_register("aten::_histogramdd_from_bin_cts")(histograms.histogram_of_counts)
_register("aten::_histogramdd_from_bin_tensors")(histograms.histogram_of_edges)
_register("aten::_convert_indices_from_coo_to_csr")(compressed.compress)
_register("aten::_convert_indices_from_csr_to_coo")(compressed.coordinates)


# ---- selection: what a sort answers ------------------------------------------------------------------------------


@_register("aten::kthvalue")
def _kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device="meta")
    values, indices = aten.sort.default(self, dim)
    values, indices = (aten.slice.Tensor(each, dim, k - 1, k) for each in (values, indices))
    return (values, indices) if keepdim else (aten.squeeze.dim(values, dim), aten.squeeze.dim(indices, dim))


@_register("aten::median.dim")
def _median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return _kthvalue(self, 1)
    size = self.shape[dim]
    middle = _kthvalue(self, (size + 1) // 2, dim, True)
    if self.dtype.is_floating_point:
        # A NaN anywhere is the answer, and a sort puts it last.
        last = _kthvalue(self, size, dim, True)
        poisoned = aten.isnan.default(last[0])
        first_nan = aten.argmax.default(aten._to_copy.default(aten.isnan.default(self), dtype=torch.int32), dim, True)
        middle = aten.where.self(poisoned, last[0], middle[0]), aten.where.self(poisoned, first_nan, middle[1])
    return middle if keepdim else (aten.squeeze.dim(middle[0], dim), aten.squeeze.dim(middle[1], dim))


@_register("aten::median")
def _median(self: Tensor) -> Tensor:
    return _median_dim(aten.view.default(self, [-1]), 0)[0]


# ---- segments ------------------------------------------------------------------------------------------------------


def _segments(
    data: Tensor, lengths: Tensor | None, offsets: Tensor | None, axis: int
) -> tuple[Tensor, Tensor, list[int]]:
    """To which segment each element along the axis belongs, how long each is, and the shape with one more segment.

    The last, additional segment is that of the elements which belong to none.
    """
    if lengths is not None:
        ends = lengths.cumsum(-1)
    else:
        assert offsets is not None
        ends, lengths = offsets[..., 1:], offsets.diff(dim=-1)
    place = torch.arange(data.shape[axis], dtype=ends.dtype, device=data.device)
    lead = ends.shape[:-1]
    segment = torch.searchsorted(ends.contiguous(), place.expand(*lead, -1).contiguous(), right=True)
    trailing = [1] * (data.dim() - axis - 1)
    segment = segment.reshape(*segment.shape, *trailing).expand(data.shape)
    shape = [*data.shape[:axis], ends.shape[-1] + 1, *data.shape[axis + 1 :]]
    return segment, lengths.reshape(*lengths.shape, *trailing), shape


_SEGMENT_REDUCTIONS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", 0.0),
    "prod": ("prod", 1.0),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
}


@_register("aten::segment_reduce")
def _segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: Any = None,
) -> Tensor:
    segment, lengths, shape = _segments(data, lengths, offsets, axis)
    reduction, neutral = _SEGMENT_REDUCTIONS[reduce]
    start = data.new_full(shape, neutral if initial is None else initial)
    result = start.scatter_reduce(axis, segment, data, reduction).narrow(axis, 0, shape[axis] - 1)
    if reduce == "mean":
        empty = math.nan if initial is None else initial
        result = torch.where(lengths == 0, empty, result / lengths.clamp(min=1).to(data.dtype))
    return result


@_register("aten::_segment_reduce_backward")
def _segment_reduce_backward(
    grad: Tensor,
    output: Tensor,
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    initial: Any = None,
) -> Tensor:
    segment, lengths, shape = _segments(data, lengths, offsets, axis)
    sizes = [0] * (2 * data.dim())
    sizes[2 * (data.dim() - axis) - 1] = 1

    def of_segment(values: Tensor) -> Tensor:
        """Each element's segment's value; zero outside of all."""
        return torch.constant_pad_nd(values.expand(grad.shape), sizes).gather(axis, segment)

    def over_segment(values: Tensor, reduction: str, neutral: float) -> Tensor:
        return values.new_full(shape, neutral).scatter_reduce(axis, segment, values, reduction).gather(axis, segment)

    each_grad = of_segment(grad)
    if reduce == "sum":
        return each_grad
    if reduce == "mean":
        return each_grad / of_segment(lengths.to(data.dtype)).clamp(min=1)
    if reduce == "prod":
        is_zero = data == 0
        zeros = over_segment(is_zero.to(data.dtype), "sum", 0.0)
        others = over_segment(torch.where(is_zero, 1.0, data), "prod", 1.0 if initial is None else initial)
        without = torch.where(is_zero, others, others / torch.where(is_zero, 1.0, data))
        return each_grad * torch.where(zeros - is_zero.to(data.dtype) > 0, 0.0, without)
    is_chosen = ((data == of_segment(output)) | data.isnan()).to(data.dtype)
    return each_grad * is_chosen / over_segment(is_chosen, "sum", 0.0).clamp(min=1)


# ---- matrices -----------------------------------------------------------------------------------------------------


@_register("aten::linalg_matrix_sqrth")
def _matrix_sqrth(self: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(self)
    return vectors * values.clamp(min=0).sqrt().to(vectors.dtype).unsqueeze(-2) @ vectors.mH


@_register("aten::linalg_polar")
def _polar(A: Tensor) -> tuple[Tensor, Tensor]:
    u, s, vh = torch.linalg.svd(A, full_matrices=False)
    return u @ vh, vh.mH * s.to(vh.dtype).unsqueeze(-2) @ vh


# ---- attention as the CPU names it --------------------------------------------------------------------------------


def _attention_scores(
    query: Tensor, key: Tensor, is_causal: bool, attn_mask: Tensor | None, scale: float | None
) -> Tensor:
    scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        rows, columns = (torch.arange(size, device=query.device) for size in scores.shape[-2:])
        scores = torch.where(columns <= rows[:, None], scores, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask.to(scores.dtype)
    return scores


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    return tuple(each.float() if each.dtype in (torch.float16, torch.bfloat16) else each for each in tensors)


@_register("aten::_scaled_dot_product_flash_attention_for_cpu")
def _flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    wide_query, wide_key, wide_value = _wide(query, key, value)
    scores = _attention_scores(wide_query, wide_key, is_causal, attn_mask, scale)
    logsumexp = scores.logsumexp(-1)
    result = aten._safe_softmax.default(scores, -1) @ wide_value
    return result.to(query.dtype), logsumexp


@_register("aten::_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    wide_grad, wide_query, wide_key, wide_value, wide_out = _wide(grad_out, query, key, value, out)
    scores = _attention_scores(wide_query, wide_key, is_causal, attn_mask, scale)
    weights = torch.where(torch.isinf(logsumexp)[..., None], 0.0, (scores - logsumexp[..., None]).exp())
    grad_weights = wide_grad @ wide_value.mT - (wide_grad * wide_out).sum(-1, keepdim=True)
    grad_scores = weights * grad_weights * (query.shape[-1] ** -0.5 if scale is None else scale)
    grads = grad_scores @ wide_key, grad_scores.mT @ wide_query, weights.mT @ wide_grad
    return tuple(grad.to(query.dtype) for grad in grads)


# ---- fused optimizers ----------------------------------------------------------------------------------------------
# The functional forms return the written lists in the schema's order. Everything that is a tensor here is an input of
# the program; `lr` given as a number is part of the key.


def _unless(found_inf: Tensor | None, old: Tensor, new: Tensor) -> Tensor:
    return new if found_inf is None else torch.where(found_inf == 1, old, new)


def _adam(decoupled: bool) -> Callable[..., Any]:
    def adam(
        self: Sequence[Tensor],
        grads: Sequence[Tensor],
        exp_avgs: Sequence[Tensor],
        exp_avg_sqs: Sequence[Tensor],
        max_exp_avg_sqs: Sequence[Tensor],
        state_steps: Sequence[Tensor],
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> tuple[list[Tensor], ...]:
        out: tuple[list[Tensor], ...] = ([], [], [], [], [])
        for i, (old, grad, exp_avg, exp_avg_sq, step) in enumerate(
            zip(self, grads, exp_avgs, exp_avg_sqs, state_steps, strict=True)
        ):
            unscaled = grad if grad_scale is None else grad / grad_scale
            gradient = -unscaled if maximize else unscaled
            param = old
            if weight_decay != 0:
                if decoupled:
                    param = param - lr * weight_decay * param
                else:
                    gradient = gradient + weight_decay * param
            first = exp_avg + (1 - beta1) * (gradient - exp_avg)
            second = beta2 * exp_avg_sq + (1 - beta2) * gradient * gradient
            # The optimizer has already counted this step.
            first_correction = 1 - torch.pow(beta1, step)
            second_correction = (1 - torch.pow(beta2, step)).sqrt()
            largest = torch.maximum(max_exp_avg_sqs[i], second) if amsgrad else second
            denominator = largest.sqrt() / second_correction + eps
            param = param - (lr / first_correction) * first / denominator
            out[0].append(_unless(found_inf, old, param.to(old.dtype)))
            out[1].append(unscaled)
            out[2].append(_unless(found_inf, exp_avg, first.to(exp_avg.dtype)))
            out[3].append(_unless(found_inf, exp_avg_sq, second.to(exp_avg_sq.dtype)))
            if amsgrad:
                out[4].append(_unless(found_inf, max_exp_avg_sqs[i], largest.to(exp_avg_sq.dtype)))
        return out

    return adam


_register("aten::_fused_adam", "aten::_fused_adam.tensor_lr")(_adam(decoupled=False))
_register("aten::_fused_adamw", "aten::_fused_adamw.tensor_lr")(_adam(decoupled=True))


@_register("aten::_fused_sgd", "aten::_fused_sgd.tensor_lr")
def _fused_sgd(
    self: Sequence[Tensor],
    grads: Sequence[Tensor],
    momentum_buffer_list: Sequence[Tensor],
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> tuple[list[Tensor], ...]:
    out: tuple[list[Tensor], ...] = ([], [], [])
    for i, (old, grad) in enumerate(zip(self, grads, strict=True)):
        unscaled = grad if grad_scale is None else grad / grad_scale
        gradient = -unscaled if maximize else unscaled
        if weight_decay != 0:
            gradient = gradient + weight_decay * old
        if momentum != 0:
            buffer = momentum_buffer_list[i]
            moved = gradient if is_first_step else momentum * buffer + (1 - dampening) * gradient
            out[2].append(_unless(found_inf, buffer, moved))
            gradient = gradient + momentum * moved if nesterov else moved
        out[0].append(_unless(found_inf, old, old - lr * gradient))
        out[1].append(unscaled)
    return out


@_register("aten::_fused_adagrad")
def _fused_adagrad(
    self: Sequence[Tensor],
    grads: Sequence[Tensor],
    state_sums: Sequence[Tensor],
    state_steps: Sequence[Tensor],
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> tuple[list[Tensor], ...]:
    out: tuple[list[Tensor], ...] = ([], [], [], [])
    for old, grad, state_sum, step in zip(self, grads, state_sums, state_steps, strict=True):
        unscaled = grad if grad_scale is None else grad / grad_scale
        gradient = -unscaled if maximize else unscaled
        if weight_decay != 0:
            gradient = gradient + weight_decay * old
        total = state_sum + gradient * gradient
        rate = lr / (1 + (step - 1) * lr_decay)
        param = old - rate * gradient / (total.sqrt() + eps)
        out[0].append(_unless(found_inf, old, param))
        out[1].append(unscaled)
        out[2].append(_unless(found_inf, state_sum, total))
        out[3].append(step)
    return out
