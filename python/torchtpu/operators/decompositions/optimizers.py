"""Fused optimizers.

The functional forms return the written lists in the schema's order. All tensors are inputs of the program. A number
`lr` is part of the key.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from torchtpu.operators.registry import register

aten = torch.ops.aten


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
            # The optimizer has already incremented the step.
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


register("aten::_fused_adam", "aten::_fused_adam.tensor_lr")(_adam(decoupled=False))
register("aten::_fused_adamw", "aten::_fused_adamw.tensor_lr")(_adam(decoupled=True))


@register("aten::_fused_sgd", "aten::_fused_sgd.tensor_lr")
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


@register("aten::_fused_adagrad")
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
