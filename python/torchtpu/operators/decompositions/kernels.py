"""Operators for which PyTorch has kernels but no decompositions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torchtpu.operators.registry import register

aten = torch.ops.aten


@register("aten::put")
def _put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
    flat = aten.index_put.default(
        aten.view.default(self, [-1]), [aten.view.default(index, [-1])], aten.view.default(source, [-1]), accumulate
    )
    return aten.view.default(flat, self.shape)


@register("aten::_foreach_zero")
def _foreach_zero(self: Sequence[Tensor]) -> list[Tensor]:
    return [aten.full.default(each.shape, 0, dtype=each.dtype, device="meta") for each in self]


@register("aten::_amp_foreach_non_finite_check_and_unscale")
def _unscale(self: Sequence[Tensor], found_inf: Tensor, inv_scale: Tensor) -> tuple[list[Tensor], Tensor]:
    unscaled = []
    for each in self:
        finite = aten.logical_not.default(aten.isinf.default(each) | aten.isnan.default(each))
        found_inf = torch.where(finite.all(), found_inf, 1.0)
        unscaled.append((each * inv_scale).to(each.dtype))
    return unscaled, found_inf


@register("aten::_amp_update_scale")
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


# ---- selection by sorting ------------------------------------------------------------------------------


@register("aten::kthvalue")
def _kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device="meta")
    values, indices = aten.sort.default(self, dim)
    values, indices = (aten.slice.Tensor(each, dim, k - 1, k) for each in (values, indices))
    return (values, indices) if keepdim else (aten.squeeze.dim(values, dim), aten.squeeze.dim(indices, dim))


@register("aten::median.dim")
def _median_dim(self: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    if self.dim() == 0:
        return _kthvalue(self, 1)
    size = self.shape[dim]
    middle = _kthvalue(self, (size + 1) // 2, dim, True)
    if self.dtype.is_floating_point:
        # If there is a NaN, it is the result. A sort puts it last.
        last = _kthvalue(self, size, dim, True)
        poisoned = aten.isnan.default(last[0])
        first_nan = aten.argmax.default(aten._to_copy.default(aten.isnan.default(self), dtype=torch.int32), dim, True)
        middle = aten.where.self(poisoned, last[0], middle[0]), aten.where.self(poisoned, first_nan, middle[1])
    return middle if keepdim else (aten.squeeze.dim(middle[0], dim), aten.squeeze.dim(middle[1], dim))


@register("aten::median")
def _median(self: Tensor) -> Tensor:
    return _median_dim(aten.view.default(self, [-1]), 0)[0]


# ---- matrices -----------------------------------------------------------------------------------------------------


@register("aten::linalg_matrix_sqrth")
def _matrix_sqrth(self: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh(self)
    return vectors * values.clamp(min=0).sqrt().to(vectors.dtype).unsqueeze(-2) @ vectors.mH


@register("aten::linalg_polar")
def _polar(A: Tensor) -> tuple[Tensor, Tensor]:
    u, s, vh = torch.linalg.svd(A, full_matrices=False)
    return u @ vh, vh.mH * s.to(vh.dtype).unsqueeze(-2) @ vh


@register("aten::glu_backward_jvp")
def _glu_backward_jvp(grad_x: Tensor, grad_glu: Tensor, x: Tensor, dgrad_glu: Tensor, dx: Tensor, dim: int) -> Tensor:
    """The tangent of the gradient of `x`, for the tangents `dx` of `x` and `dgrad_glu` of the result's gradient."""
    (value, gate), (value_change, gate_change) = x.chunk(2, dim), dx.chunk(2, dim)
    opened = gate.sigmoid()
    slope = opened * (1 - opened)
    of_value = dgrad_glu * opened + grad_glu * slope * gate_change
    of_gate = dgrad_glu * value + grad_glu * (value_change + value * (1 - 2 * opened) * gate_change)
    return torch.cat([of_value, of_gate * slope], dim)


@register("aten::_add_relu.Tensor", "aten::_add_relu.Scalar")
def _add_relu(self: Tensor, other: Tensor | float, alpha: float = 1) -> Tensor:
    return torch.relu(torch.add(self, other, alpha=alpha))


@register("aten::_masked_scale")
def _masked_scale(self: Tensor, mask: Tensor, scale: float) -> Tensor:
    """The dropout of values with a given mask."""
    return self * mask.to(self.dtype) * scale


@register("aten::_compute_linear_combination")
def _linear_combinations(input: Tensor, coefficients: Tensor) -> Tensor:
    return torch.tensordot(coefficients.to(input.dtype), input, 1)


@register("aten::dequantize.self")
def _dequantize(self: Tensor) -> Tensor:
    return self.to(torch.float32)
