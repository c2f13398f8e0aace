"""Compiled graphs with bounded dimensions: one program for all sizes up to a bound, with exact results.

The host pads with NaN, so padding that affects a result is detected.
"""

from __future__ import annotations

import copy
import itertools
import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch._dynamo.utils import counters

from tests.helpers import assert_same, programs_made

pytestmark = pytest.mark.usefixtures("fresh_dynamo")

Shape = tuple[int | str, ...]


def _inputs(shapes: list[Shape], sizes: dict[str, int], generator: torch.Generator) -> list[Tensor]:
    def made(shape: Shape) -> Tensor:
        return torch.randn([sizes[n] if isinstance(n, str) else n for n in shape], generator=generator)

    return [made(shape) for shape in shapes]


def check_bounded(
    function: Callable[..., Any],
    device: torch.device,
    *shapes: Shape,
    least: int = 3,
    limit: int = 19,
    eager_is_idle: bool = True,
) -> None:
    """The compiled function and its gradients equal the CPU's for random sizes in place of the letters, with one
    program for all sizes (and one for the gradients)."""
    generator = torch.Generator().manual_seed(0)
    drawn = random.Random(0)
    letters = sorted({n for shape in shapes for n in shape if isinstance(n, str)})
    compiled = torch.compile(function, fullgraph=True)
    for number in range(6):
        # Distinct sizes, so that Dynamo does not identify them, and the largest first.
        first = dict(zip(letters, range(limit, 0, -1), strict=False))
        sizes = dict(zip(letters, drawn.sample(range(least, limit), len(letters)), strict=True)) if number else first
        on_cpu = [each.requires_grad_() for each in _inputs(list(shapes), sizes, generator)]
        on_device = [each.detach().to(device).requires_grad_() for each in on_cpu]
        for each, shape in zip(on_device, shapes, strict=True):
            for axis, n in enumerate(shape):
                if isinstance(n, str):
                    torch._dynamo.mark_dynamic(each, axis, min=least, max=limit)
        before = programs_made()
        result, expected = compiled(*on_device), function(*on_cpu)
        assert_same(result, expected)
        pairs = [each for each in zip(_tensors(result), _tensors(expected), strict=True) if each[1].requires_grad]
        if pairs:
            grads = [torch.randn(other.shape, generator=generator) for _, other in pairs]
            torch.autograd.backward([one for one, _ in pairs], [grad.to(device) for grad in grads])
            torch.autograd.backward([other for _, other in pairs], grads)
        for one, other in zip(on_device, on_cpu, strict=True):
            assert (one.grad is None) == (other.grad is None)
            if other.grad is not None:
                torch.testing.assert_close(one.grad.cpu(), other.grad, rtol=1e-4, atol=1e-5)
        if number and eager_is_idle:
            assert programs_made() == before, f"a program for the sizes {sizes}"
    assert not counters["tpu_unbounded"]


def test_allocations_and_writes_at_separated_indices(device: torch.device) -> None:
    def write(cache: Tensor, rows: Tensor, columns: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        doubled = torch.empty((2 * values.shape[0], 4), device=values.device)
        doubled.copy_(torch.cat([values[:, 0], values[:, 1]]))
        cache = cache.clone()
        cache[rows, :, columns] = values
        return cache, doubled + torch.empty_like(doubled).fill_(1)

    compiled = torch.compile(write, fullgraph=True)
    for size in (3, 7, 5, 12):
        cache, values = torch.randn(64, 2, 12, 4), torch.randn(size, 2, 4)
        given = (cache, torch.randperm(64)[:size], torch.randperm(12)[:size], values)
        on_device = [each.to(device) for each in given]
        # The sizes are marked apart, though they must be the same.
        for each in on_device[1:]:
            torch._dynamo.mark_dynamic(each, 0, min=3, max=12)
        before = programs_made()
        assert_same(compiled(*on_device), write(*given))
        assert size == 3 or programs_made() == before
    assert not counters["tpu_unbounded"]


def _tensors(value: Any) -> list[Tensor]:
    return [value] if isinstance(value, Tensor) else list(value)


LSTM_WEIGHTS = [torch.linspace(-1, 1, 12 * size).reshape(12, size) for size in (4, 3)]


FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Shape, ...]]] = {
    "elementwise": (lambda x, y: F.gelu(x) * y + 1, (("s", 3), (3,))),
    "sum of all": (lambda x: x.sum(), (("b", "s"),)),
    "mean": (lambda x: x.mean(1), ((3, "s", 2),)),
    "mean of all": (lambda x: x.square().mean(), (("b", "s"),)),
    "variance": (lambda x: torch.var_mean(x, dim=1), ((3, "s"),)),
    "standard deviation": (lambda x: x.std(0, correction=0), (("s", 3),)),
    "extremes": (lambda x: (x.amax(1), x.amin(0)), (("b", "s"),)),
    "extremes and their places": (lambda x: [each for f in (x.max(1), x.min(0)) for each in f], (("b", "s"),)),
    "argmax": (lambda x: x.argmax(1), ((3, "s"),)),
    "product": (lambda x: x.prod(1), ((3, "s"),)),
    "logsumexp": (lambda x: x.logsumexp(-1), ((3, "s"),)),
    "softmax": (lambda x: x.softmax(-1), (("b", "s"),)),
    "log_softmax": (lambda x: x.log_softmax(0), (("s", 4),)),
    "any": (lambda x: (x > 1).any(1), ((3, "s"),)),
    "all": (lambda x: (x > -9).all(1), ((3, "s"),)),
    "running sum": (lambda x: x.cumsum(1), ((3, "s"),)),
    "matrix product": (lambda x, y: x @ y, ((3, "s"), ("s", 4))),
    "batched product": (lambda x, y: (x @ y.transpose(1, 2)).square().mean(), (("b", "s", 4), ("b", "t", 4))),
    "attention": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v).square().mean(), ((2, 2, "s", 4),) * 3),
    "causal attention": (lambda q, k: F.scaled_dot_product_attention(q, k, k, is_causal=True), (("b", 2, "s", 4),) * 2),
    "linear": (lambda x, w: F.linear(x, w), (("b", "s", 4), (5, 4))),
    "layer norm": (lambda x, w: F.layer_norm(x, (4,), w), (("b", "s", 4), (4,))),
    "rms norm": (lambda x: F.rms_norm(x, (4,)), (("s", 4),)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), (("b", 4, 3, 3),)),
    "convolution": (lambda x, w: F.conv2d(x, w, padding=1), (("b", 3, 5, 5), (4, 3, 3, 3))),
    "depthwise convolution": (lambda x, w: F.conv2d(x, w, groups=4), (("b", 4, 5, 5), (4, 1, 3, 3))),
    "max pool": (lambda x: F.max_pool2d(x, 2), (("b", 2, 6, 6),)),
    "mean pool": (lambda x: F.avg_pool2d(x, 3, 2), (("b", 2, 7, 7),)),
    "mse": (lambda x, y: F.mse_loss(x, y), (("b", "s"), ("b", "s"))),
    "transpose": (lambda x: (x.transpose(0, 1) * 2).square().sum(), ((3, "s"),)),
    "a transposed result": (lambda x: (x.detach() * 2).t(), ((2, "s"),)),
    "flip": (lambda x: x.flip(0, 1), (("s", 3),)),
    "select": (lambda x: x[:, -1] + x[:, 2], ((3, "s"),)),
    "masked fill": (lambda x: x.masked_fill(x < 0, 3), ((3, "s"),)),
    "a cat": (lambda x, y: torch.cat([x, y, x], 1) * 2, ((3, "s"), (3, "t"))),
    "a cat with one more": (lambda x, y: torch.cat([x, y], 1).softmax(1), ((3, "s"), (3, 1))),
    "indices from the end": (lambda x: x[torch.tensor([0, -1, -2], device=x.device)], (("s", 3),)),
    "cross entropy": (lambda x: F.cross_entropy(x, (x[:, 0] > 0).long() * 2), (("s", 4),)),
    "merged dimensions": (lambda x: (x * 2).reshape(-1, 3).exp(), ((4, "s", 3),)),
    "split dimensions": (lambda x: (x * 2).reshape(-1, 4, 3).sum(0), (("s", 12),)),
    "merged and split": (lambda x: (x.reshape(-1, 3) * 2).view(4, x.shape[1], 3).sum(1), ((4, "s", 3),)),
    "expand": (lambda x, y: x.expand(y.shape[0], 4) * y, ((1, 4), ("s", 4))),
    "a size as a number": (lambda x: x / x.shape[1] + x.numel(), ((3, "s"),)),
    "arange": (lambda x: x * torch.arange(x.shape[1], device=x.device), ((3, "s"),)),
    "arange from": (lambda x: x * torch.arange(5, x.shape[1] + 5, device=x.device), ((3, "s"),)),
    "zeros": (lambda x: torch.zeros(x.shape[1], 2, device=x.device) + x[0, :, None], ((3, "s"),)),
    "tril": (lambda x: x.tril(-1), (("s", "t"),)),
    "where": (lambda x: torch.where(x > 0, x, torch.full_like(x, 7)), ((3, "s"),)),
    "without the last": (lambda x: x[:, :-1].sum(1), ((3, "s"),)),
    "without the first": (lambda x: (x[:, 1:] * 2).sum(1), ((3, "s"),)),
    "cat of other dimensions": (lambda x: torch.cat([x, x * 2], 1).sum(0), (("s", 3),)),
    "sort": (lambda x: tuple(x.sort(1)), (("b", "s"),)),
    "sort beside": (lambda x: tuple(x.sort(1)), (("s", 5),)),
    "sort descending": (lambda x: tuple(x.sort(0, descending=True)), (("s", 3),)),
    "sort of integers": (lambda x: tuple((x * 2).long().sort(stable=True, dim=1)), ((3, "s"),)),
    "argsort of bools": (lambda x: (x > 0).sort(stable=True, dim=0, descending=True)[1], (("s", 2),)),
    "largest": (lambda x: tuple(x.topk(3, 1)), (("b", "s"),)),
    "smallest": (lambda x: tuple(x.topk(2, 0, largest=False)), (("s", 4),)),
    "largest beside": (lambda x: tuple(x.topk(2, 1)), (("s", 4),)),
    "group norm": (lambda x, w: F.group_norm(x, 2, w, w), (("b", 4, "s"), (4,))),
    "group norm of an image": (lambda x: F.group_norm(x, 2), (("b", 4, "s", "t"),)),
    "pad": (lambda x: F.pad(x, (1, 2), value=3).cumsum(1), (("b", "s"),)),
    "pad beside": (lambda x: F.pad(x, (2, 0, 1, 1)), (("s", 2, 3),)),
    "pad and cut": (lambda x: F.pad(x, (2, -1)).sum(1) + F.pad(x, (-1, 1)).sum(1), ((3, "s"),)),
    "roll": (lambda x: x.roll((2, -1), (1, 0)), (("b", "s"),)),
    "roll beside": (lambda x: x.roll(7, 1), (("s", 3),)),
    "repeat": (lambda x: x.detach().repeat(2, 3), (("b", "s"),)),
    "repeat beside": (lambda x: x.repeat(2, 1, 3).sum(1), (("s", 3),)),
    "nothing beside": (lambda x: (x.sum(1, keepdim=True), x + 1), (("s", 0),)),
    "error functions": (lambda x: torch.erf(x) + torch.erfc(x) * torch.lgamma(x.abs() + 1), (("s", 4),)),
    "special functions": (
        lambda x: torch.digamma(x.abs() + 1) * torch.special.i0e(x) + torch.special.bessel_j0(x.detach()),
        ((3, "s"),),
    ),
    "erfinv": (lambda x: torch.erfinv(x.tanh() * 0.9) + torch.special.ndtri(x.sigmoid()), (("s",),)),
    "polynomials": (lambda x: torch.special.hermite_polynomial_h(x.detach(), 3) * x, (("s", 2),)),
    "Fourier transforms": (
        lambda x: [torch.fft.rfft(x).abs(), torch.fft.irfft(torch.fft.fft(x, dim=1)).abs(), torch.fft.fft2(x).abs()],
        (("s", 4, 6),),
    ),
    "a spectrogram": (
        lambda x: (
            torch.stft(x, 8, 4, window=torch.hann_window(8, device=x.device), return_complex=True, center=False)
            .abs()
            .square()
        ),
        (("s", 24),),
    ),
    "complex numbers": (
        lambda x: torch.view_as_real(torch.view_as_complex(x) * torch.view_as_complex(x.flip(0)).conj()),
        (("s", 3, 2),),
    ),
    "resized images": (
        lambda x: [
            F.interpolate(x, size=(7, 5), mode="bilinear", align_corners=False),
            F.interpolate(x, scale_factor=2, mode="nearest"),
            F.interpolate(x, size=(3, 3), mode="bicubic"),
            F.interpolate(x, size=(2, 3), mode="area"),
            F.interpolate(x, size=(3, 2), mode="bilinear", antialias=True),
        ],
        (("s", 2, 4, 6),),
    ),
    "pixel shuffles": (
        lambda x: [F.pixel_shuffle(x, 2) * 2, F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 4)],
        (("s", 4, 6, 2),),
    ),
    "pixel shuffle of a changing height": (lambda x: F.pixel_shuffle(x, 2).cumsum(2), ((2, 4, "s", 3),)),
    "distances": (lambda x, y: torch.cdist(x, y), (("s", 5), ("t", 5))),
    "distances of order 1": (lambda x, y: torch.cdist(x, y, p=1.0).sum(1), (("s", 5), ("t", 5))),
    "searchsorted": (
        lambda x, y: torch.searchsorted(x.detach().sort().values, y) + torch.bucketize(y, x.detach().sort()[0]),
        (("s",), ("t", 2)),
    ),
    "cells": (
        lambda x: torch._VF.lstm_cell(x, (x[:, :3], x[:, 1:4]), *(each.to(x.device) for each in LSTM_WEIGHTS))[0],
        (("s", 4),),
    ),
    "scatter_reduce": (
        lambda x, y: [
            y.scatter_reduce(0, (x > 0).long() * 2, x, name, include_self=included)
            for name, included in itertools.product(("amax", "prod", "mean", "sum"), (True, False))
        ],
        (("s",), ("t",)),
    ),
    "scatter_reduce of rows": (
        lambda x, y: y.scatter_reduce(0, (x > 0).long() * 2, x, "amin"),
        (("s", 4), ("t", 4)),
    ),
    "scatter with a reduction": (
        lambda x, y: y.detach().scatter(0, (x > 0).long(), x.detach(), reduce="multiply") * y,
        (("s",), ("t",)),
    ),
    "index_reduce": (
        lambda x, y: y.index_reduce(0, (x[:, 0] > 0).long(), x, "amax", include_self=False),
        (("s", 3), ("t", 3)),
    ),
    "index_fill": (lambda x: x.index_fill(1, torch.tensor([1, -2], device=x.device), 3.0) * 2, ((3, "s"),)),
    "index_fill by a changing index": (lambda x, y: y.index_fill(0, (x > 0).long() - 1, 3.0) * 2, (("s",), ("t", 2))),
    "gather": (lambda x: x.gather(1, (x > 0).long()), (("s", 4),)),
    "convolution along": (lambda x, w: F.conv1d(x, w, padding=1), (("b", 4, "s"), (5, 4, 3))),
    "convolution of an image": (lambda x, w: F.conv2d(x, w, padding=(1, 0)).relu(), (("b", 2, "s", "t"), (3, 2, 3, 2))),
    "convolution in steps": (lambda x, w: F.conv1d(x, w, stride=2, padding=2), ((2, 4, "s"), (5, 4, 4))),
    "dilated convolution": (lambda x, w: F.conv1d(x, w, dilation=2, padding=2), ((2, 4, "s"), (5, 4, 3))),
    "convolution in groups": (lambda x, w: F.conv1d(x, w, groups=2, padding=1), ((2, 4, "s"), (6, 2, 3))),
    "depthwise convolution along": (lambda x, w: F.conv1d(x, w, groups=4, padding=1), (("b", 4, "s"), (4, 1, 3))),
    "causal convolution": (lambda x, w: F.conv1d(F.pad(x, (2, 0)), w), ((2, 4, "s"), (5, 4, 3))),
    "transposed convolution": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
        (("b", 4, "s"), (4, 3, 3)),
    ),
    "convolutions": (
        lambda x, w: F.conv1d(F.gelu(F.conv1d(x, w, stride=2, padding=1)), w, stride=2, padding=1).mean(-1),
        (("b", 4, "s"), (4, 4, 3)),
    ),
    "max pool of an image": (lambda x: F.max_pool2d(x, 3, 2, 1), ((2, 3, "s", "t"),)),
    "positions of max pool": (
        lambda x: F.max_pool2d(x, (2, 3), (2, 1), return_indices=True),
        ((2, 3, "s", "t"),),
    ),
    "mean pool of an image": (lambda x: F.avg_pool2d(x, 3, 2, 1), ((2, 3, "s", "t"),)),
    "mean pool of what is there": (
        lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        ((2, 3, "s", "t"),),
    ),
    "largest of all places": (lambda x: F.adaptive_max_pool2d(x, 1), (("b", 3, "s", "t"),)),
    "mean of all places": (lambda x: F.adaptive_avg_pool2d(x, 1), (("b", 3, "s", "t"),)),
    "tokens of an image": (lambda x: (x.flatten(2).transpose(1, 2) * 2).mean(1), ((2, 4, "s", "t"),)),
    "mean of some places": (lambda x: F.adaptive_avg_pool2d(x, (3, 2)), (("b", 3, "s", "t"),)),
    "identity matrix": (
        lambda x: x @ torch.eye(x.shape[1], device=x.device) + torch.eye(4, x.shape[1], device=x.device),
        ((4, "s"),),
    ),
    "every other": (lambda x: x[:, ::2] * 2, (("b", "s"),)),
    "every third from the second": (lambda x: (x[:, 1:-1:3] * 2).sum(1), (("b", "s"),)),
    "pad to a multiple": (lambda x: F.pad(x, (0, -x.shape[1] % 4)).cumsum(1), ((3, "s"),)),
    "pad by a size": (lambda x, y: F.pad(x, (y.shape[0], 1), value=2).cumsum(1), ((3, "s"), ("t",))),
    "reflect": (lambda x: F.pad(x, (2, 1), mode="reflect") * 2, ((2, 3, "s"),)),
    "reflect an image": (lambda x: F.pad(x, (1, 2, 2, 0), mode="reflect") * 2, (("b", 3, "s", "t"),)),
    "replicate": (lambda x: F.pad(x, (2, 3), mode="replicate") * 2, (("b", 3, "s"),)),
    "replicate and cut": (lambda x: F.pad(x, (-1, 3), mode="replicate") * 2, ((2, 3, "s"),)),
    "repeat and its gradient": (lambda x: x.repeat(2, 3).sin(), (("b", "s"),)),
    "repeat by a size": (lambda x, y: x.repeat(y.shape[0], 1) + y[:, None], ((1, "s"), ("t",))),
    "running sum of a repeat": (lambda x: x.repeat(1, 2).cumsum(1), ((3, "s"),)),
    "a repeat and what is as long": (lambda x, y: x.repeat(1, 2) + torch.cat([y, y], 1), ((3, "s"), (3, "s"))),
    "a slice put in": (lambda x: x.slice_scatter(x[:, 1:-1] * 3, 1, 1, -1) * 2, ((3, "s"),)),
    "slices put in": (lambda x: x.slice_scatter(x[:, ::2] * 3, 1, step=2), ((3, "s"),)),
    "one put in": (lambda x, y: x.select_scatter(y, 1, -2), ((3, "s"), (3,))),
    "diagonal": (lambda x: x.diagonal() * 2, (("s", "t"),)),
    "diagonal beside": (lambda x: x.diagonal(-1, 2, 1) * 2, ((2, "s", "t"),)),
    "diagonal above": (lambda x: x.diagonal(2, 0, 2) * 2, (("s", 2, "t"),)),
    "a diagonal matrix": (lambda x: x.diag_embed() * 2, (("b", "s"),)),
    "a diagonal matrix below": (lambda x: x.diag_embed(-2, 0, 2) * 2, ((2, "s"),)),
    "windows": (lambda x: x.unfold(1, 3, 2).sin(), (("b", "s", 2),)),
    "euclidean norm": (lambda x: F.normalize(x, dim=1), (("b", "s"),)),
    "other norms": (
        lambda x: [torch.linalg.vector_norm(x, p, 1) for p in (0, 1, 3, float("inf"), float("-inf"))],
        (("b", "s"),),
    ),
    "median": (lambda x: x.median(1), ((3, "s"),)),
    "median of numbers": (lambda x: x.nanmedian(0), (("s", 3),)),
    "second smallest": (lambda x: x.kthvalue(2, 1), (("b", "s"),)),
}

# A size of 0 or 1 would occur for smaller sizes, and PyTorch specializes on these.
AT_LEAST_SIX = (
    "convolutions",
    "positions of max pool",
    "every third from the second",
    "windows",
    "a slice put in",
    "diagonal above",
)

# Gradients whose strides differ from those of their leaves, which autograd then copies.
COPIED = (
    "batched product",
    "attention",
    "a cat",
    "a cat with one more",
    "diagonal above",
    "one put in",
    "tokens of an image",
)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32, torch.int8, torch.bool])
def test_extreme_values_sort_before_padding(dtype: torch.dtype, device: torch.device) -> None:
    limits = (
        torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(torch.uint8 if dtype == torch.bool else dtype)
    )
    extremes = [float("inf"), float("nan"), float("-inf")] if dtype.is_floating_point else [limits.max, limits.min]

    def function(x: Tensor) -> list[Tensor]:
        sorts = [x.sort(stable=True, dim=0, descending=descending) for descending in (False, True)]
        tops = [] if dtype == torch.bool else [x.topk(6, 0, largest=largest)[0] for largest in (False, True)]
        return [*(each for pair in sorts for each in pair), *tops]

    compiled = torch.compile(function, fullgraph=True)
    for n in (11, 6, 8):
        x = torch.tensor([*extremes, *extremes, *range(n - 2 * len(extremes))], dtype=dtype)
        on_device = x.to(device)
        torch._dynamo.mark_dynamic(on_device, 0, min=6, max=13)
        assert_same(compiled(on_device), function(x))
    assert not counters["tpu_unbounded"]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_exact(name: str, device: torch.device) -> None:
    function, shapes = FUNCTIONS[name]
    least = 6 if name in AT_LEAST_SIX else 3
    check_bounded(function, device, *shapes, least=least, eager_is_idle=name not in COPIED)


def test_numbers_of_merged_places(device: torch.device) -> None:
    """The index of an element of merged dimensions in a padded value differs from its index among the valid
    elements."""

    def function(x: Tensor) -> Tensor:
        return x.flatten(1) + torch.arange(x.shape[1] * x.shape[2], device=x.device)

    compiled = torch.compile(function, dynamic=True)
    for height, width in ((5, 7), (6, 9), (4, 11), (8, 3)):
        x = torch.randn(2, height, width)
        assert_same(compiled(x.to(device)), function(x))


TOLD_APART: dict[str, Callable[[Tensor], Tensor]] = {
    "max pool": lambda x: F.max_pool2d(x, 2, ceil_mode=True, padding=1),
    "mean pool": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "mean pool of what is there": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False),
    "half from the end": lambda x: x[:, :, -(x.shape[2] // 2) :].cumsum(2),
    "chunks": lambda x: torch.cat([part.cumsum(2) for part in x.chunk(2, 2)], 2),
}


@pytest.mark.parametrize("name", TOLD_APART)
def test_graphs_for_odd_and_even_sizes(name: str, device: torch.device) -> None:
    """PyTorch specializes on parity here: there is a graph for each parity, but not for each size."""
    compiled = torch.compile(TOLD_APART[name], dynamic=True)
    made = []
    for size in (9, 11, 13, 12, 10, 14, 8, 15, 7, 16):
        on_cpu = torch.randn(2, 3, size, size + 4, requires_grad=True)
        given = on_cpu.detach().to(device).requires_grad_()
        before = programs_made()
        result = compiled(given)
        made.append(programs_made() - before)
        expected = TOLD_APART[name](on_cpu)
        grad = torch.randn(expected.shape)
        result.backward(grad.to(device))
        expected.backward(grad)
        assert_same(result, expected)
        torch.testing.assert_close(given.grad.cpu(), on_cpu.grad)
    assert made[-4:] == [0, 0, 0, 0]
    assert not counters["tpu_unbounded"]


# ---- bounds ------------------------------------------------------------------------------------------------------


def test_unknown_bounds_grow_in_few_steps(device: torch.device) -> None:
    compiled = torch.compile(lambda x: x.softmax(0) * 2, dynamic=True)
    inputs = [torch.randn(size) for size in range(2, 130)]
    on_device = [x.to(device) for x in inputs]
    before = programs_made()
    results = [compiled(x) for x in on_device]
    assert programs_made() - before <= 8
    assert_same(results, [x.softmax(0) * 2 for x in inputs])


def test_the_second_shape_makes_sizes_dynamic(device: torch.device) -> None:
    compiled = torch.compile(lambda x: (x * 2).sum(1))
    inputs = [torch.randn(3, size) for size in (20, 30, 19, 27, 31)]
    on_device = [x.to(device) for x in inputs]
    before = programs_made()
    results = [compiled(x) for x in on_device]
    assert programs_made() - before == 2
    assert_same(results, [(x * 2).sum(1) for x in inputs])


def test_what_cannot_be_bounded_is_explained(device: torch.device, caplog: pytest.LogCaptureFixture) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.linalg.svd(x).S

    compiled = torch.compile(function, dynamic=True)
    with caplog.at_level(logging.WARNING):
        for size in (5, 9, 4):
            x = torch.eye(size) + 0.1
            torch.testing.assert_close(compiled(x.to(device)).cpu(), function(x))
    assert ["svd" in reason for reason in counters["tpu_unbounded"]] == [True]
    assert caplog.text.count("a program for each set of sizes") == 1


def test_sizes_that_stay_are_known(device: torch.device) -> None:
    """`masked_scatter` refuses padding behind the first dimension of its values, but the batch can be bounded."""

    def function(x: Tensor, values: Tensor) -> Tensor:
        return x.masked_scatter(x > 0, values) * 2

    compiled = torch.compile(function, dynamic=True)
    made = [programs_made()]
    for batch, size in ((5, 8), (9, 8), (7, 8), (12, 8), (3, 8), (3, 6), (5, 4)):
        x, values = torch.randn(batch, size), torch.randn(batch, size)
        torch.testing.assert_close(compiled(x.to(device), values.to(device)).cpu(), function(x, values))
        made.append(programs_made())
    # For the first batch alone, for all batches, and for each size.
    assert [after - before for before, after in itertools.pairwise(made)] == [1, 1, 0, 0, 0, 1, 1]
    assert ["values to scatter" in reason for reason in counters["tpu_unbounded"]] == [True]


def test_transforms_of_several_changing_sizes_share_a_program(device: torch.device) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.fft.rfft(x).abs()

    compiled = torch.compile(function, dynamic=True)
    inputs = [
        torch.randn(batch, 3, size, size) for batch, size in ((5, 8), (9, 8), (7, 8), (12, 8), (3, 8), (3, 6), (5, 4))
    ]
    on_device = [x.to(device) for x in inputs]
    made = [programs_made()]
    for x, given in zip(inputs, on_device, strict=True):
        torch.testing.assert_close(compiled(given).cpu(), function(x))
        made.append(programs_made())
    # For the first batch alone, and for all others.
    assert [after - before for before, after in itertools.pairwise(made)] == [1, 1, 0, 0, 0, 0, 0]


# ---- results in eager code ---------------------------------------------------------------------------------------


def test_results_are_tensors_like_others(device: torch.device) -> None:
    compiled = torch.compile(lambda x: x * 2, dynamic=True)
    for size in (6, 5, 7):
        x = torch.randn(3, size, 2)
        y, expected = compiled(x.to(device)), x * 2
        assert_same(y.view(-1, 2), expected.view(-1, 2))
        assert_same(y[1], expected[1])
        assert_same(y.transpose(0, 1).contiguous(), expected.transpose(0, 1).contiguous())
        assert_same(y + 1, expected + 1)
        y[:, -1] = 7
        expected[:, -1] = 7
        assert_same(y, expected)
        assert_same(compiled(y), expected * 2)
        assert_same(compiled(y.view(3, -1, 1)), expected.view(3, -1, 1) * 2)
        assert_same(copy.deepcopy(y), expected)
        assert y.tolist() == expected.tolist()
        y.resize_(2, 2)
        assert_same(y, expected.resize_(2, 2))


def test_parts_of_tensors_are_inputs(device: torch.device) -> None:
    compiled = torch.compile(lambda x: x.cumsum(1), dynamic=True)
    whole = torch.randn(4, 40)
    for start in (0, 3, 20):
        part = whole.to(device)[1:, start : start + 11 + start]
        assert_same(compiled(part).contiguous(), whole[1:, start : start + 11 + start].cumsum(1).contiguous())


def test_dropout_keeps_what_it_kept(device: torch.device) -> None:
    compiled = torch.compile(lambda x: F.dropout(x, 0.5), dynamic=True)
    for size in (100, 90, 120):
        x = torch.ones(3, size, device=device, requires_grad=True)
        y = compiled(x)
        y.sum().backward()
        assert torch.equal(x.grad, y.detach())
        assert 0.3 < y.count_nonzero().item() / y.numel() < 0.7
