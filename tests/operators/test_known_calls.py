"""A call whose operator, sizes and dtypes are known is checked for its numbers, as a new call is."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers import check_refused

pytestmark = pytest.mark.each_mode

Numbers = tuple[Any, ...]


def gradient_in_place(activation: Callable[[Tensor, float], Tensor]) -> Callable[[Tensor, float], None]:
    def program(x: Tensor, slope: float) -> None:
        x = x.detach().clone().requires_grad_()
        torch.autograd.grad(activation(x.clone(), slope).sum(), x)

    return program


def labels(x: Tensor) -> Tensor:
    return torch.arange(len(x), device=x.device)


# A function of a tensor and numbers, numbers that it takes, and numbers that it refuses.
CALLS: dict[str, tuple[Callable[..., Any], Numbers, list[Numbers]]] = {
    "histc": (
        lambda x, low, high: torch.histc(x, 4, low, high),
        (0.0, 1.0),
        [(5.0, 1.0), (math.nan, 1.0), (0.0, math.inf)],
    ),
    "histc of any end": (lambda x, low: torch.histc(x, 4, low), (-1.0,), [(5.0,), (-math.inf,)]),
    "softshrink": (F.softshrink, (0.5,), [(-1.0,), (math.nan,), (1e39,)]),
    "leaky_relu_": (gradient_in_place(F.leaky_relu_), (0.1,), [(-0.1,)]),
    "elu_": (gradient_in_place(F.elu_), (0.1,), [(-0.1,)]),
    "renorm": (lambda x, p, most: torch.renorm(x, p, 0, most), (2.0, 1.0), [(2.0, -1.0), (-2.0, 1.0)]),
    "celu": (F.celu, (1.0,), [(0.0,)]),
    "huber_loss": (lambda x, delta: F.huber_loss(x, x * 2, delta=delta), (1.0,), [(-1.0,), (0.0,), (math.nan,)]),
    "dropout": (F.dropout, (0.5,), [(1.5,), (-0.5,)]),
    "native_dropout": (lambda x, p: torch.native_dropout(x, p, True), (0.5,), [(1.5,)]),
    "uniform_": (lambda x, low, high: x.clone().uniform_(low, high), (0.0, 1.0), [(2.0, 1.0), (0.0, 1e39)]),
    "normal_": (lambda x, mean, deviation: x.clone().normal_(mean, deviation), (0.0, 1.0), [(0.0, -1.0)]),
    "exponential_": (lambda x, rate: x.clone().exponential_(rate), (1.0,), [(-1.0,), (0.0,)]),
    "geometric_": (lambda x, p: x.clone().geometric_(p), (0.5,), [(1.5,), (0.0,)]),
    "cauchy_": (lambda x, sigma: x.clone().cauchy_(0, sigma), (1.0,), [(-1.0,)]),
    "log_normal_": (lambda x, deviation: x.clone().log_normal_(0, deviation), (1.0,), [(-1.0,)]),
    "bernoulli_": (lambda x, p: x.clone().bernoulli_(p), (0.5,), [(1.5,), (-0.5,)]),
    "random_": (lambda x, low, high: x.clone().random_(low, high), (0, 10), [(10, 0)]),
    "randint": (lambda x, low, high: torch.randint(low, high, (3,), device=x.device), (0, 10), [(10, 0)]),
    "pdist": (F.pdist, (2.0,), [(-2.0,)]),
    "cdist": (lambda x, p: torch.cdist(x, x, p), (2.0,), [(-2.0,)]),
    "quantile": (torch.quantile, (0.5,), [(1.5,), (-0.5,)]),
    "rrelu": (lambda x, low, high: F.rrelu(x, low, high, True), (0.1, 0.3), [(0.3, 0.1)]),
    "mvlgamma": (lambda x, p: torch.mvlgamma(x + 5, p), (2,), [(0,)]),
    "polygamma": (lambda x, n: torch.polygamma(n, x), (2,), [(-1,)]),
    "cross_entropy": (
        lambda x, smoothing: F.cross_entropy(x, labels(x), label_smoothing=smoothing),
        (0.1,),
        [(1.5,)],
    ),
    "fake_quantize": (
        lambda x, zero: torch.fake_quantize_per_tensor_affine(x, 0.1, zero, 0, 255),
        (0,),
        [(300,), (-1,)],
    ),
    "arange": (lambda x, end: torch.arange(0.0, end, device=x.device), (4.0,), [(math.inf,), (-1.0,)]),
    "multinomial": (lambda x, n: torch.multinomial(x, n), (2,), [(9,), (0,)]),
}


@pytest.mark.parametrize("name", CALLS)
def test_numbers_of_a_known_call(name: str, device: torch.device, mode: str) -> None:
    program, good, refused = CALLS[name]
    x = torch.rand(4, 6) + 0.1
    program(x.to(device), *good)
    for bad in refused:
        check_refused(lambda on, bad=bad: program(x.to(on), *bad), device)
    program(x.to(device), *good)


# A function of a tensor and a number, and numbers that it refuses.
AFTER_OTHERS: dict[str, tuple[Callable[[Tensor, float], Tensor], tuple[float, ...]]] = {
    "huber_loss": (lambda x, delta: F.huber_loss(x, x * 2, delta=delta), (-1.0, 0.0, -math.inf, math.nan)),
    "smooth_l1_loss": (lambda x, beta: F.smooth_l1_loss(x, x * 2, beta=beta), (-1.0, -math.inf)),
}


@pytest.mark.parametrize("name", AFTER_OTHERS)
def test_numbers_after_several_others(name: str, device: torch.device, mode: str) -> None:
    """The first few numbers may be constants of programs."""
    call, refused = AFTER_OTHERS[name]
    x = torch.rand(4, 6) + 0.1
    for number in (0.5, 0.75, 1.5, 2.5, 0.25):
        call(x.to(device), number)
    for bad in refused:
        check_refused(lambda on, bad=bad: call(x.to(on), bad), device)


def test_a_reduction_of_many_dimensions(device: torch.device, mode: str) -> None:
    x = torch.zeros([1] * 65)
    assert torch.nansum(x.to(device)).item() == 0
    check_refused(lambda on: torch.nansum(x.to(on), dim=64), device)
