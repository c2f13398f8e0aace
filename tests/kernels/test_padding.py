"""Kernels that take padding: sizes that change have one program up to a bound."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

jax = pytest.importorskip("jax")
pl = pytest.importorskip("jax.experimental.pallas")
jnp = jax.numpy

import torchtpu.pallas as pallas  # noqa: E402
from torchtpu.kernels.store import counters  # noqa: E402

from tests.helpers import assert_same  # noqa: E402

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def add_kernel(x, y, result):  # type: ignore[no-untyped-def]
    result[...] = x[...] + 2 * y[...]


@pallas.custom_jax_kernel(padding="zeros")
def add(x, y):  # type: ignore[no-untyped-def]
    """Takes multiples of 8 rows only."""
    assert x.shape[0] % 8 == 0
    block = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(add_kernel, out_shape=x, grid=(x.shape[0] // 8,), in_specs=[block] * 2, out_specs=block)(x, y)


@pallas.custom_jax_kernel(padding="zeros")
def product(x, w):  # type: ignore[no-untyped-def]
    return x @ w, (x * x).sum(0)


def compiles(run: Callable[[], Any]) -> tuple[Any, int]:
    """What a function returns, and the number of programs that it compiles."""
    with torch.tpu.explain() as explanation:
        result = run()
        torch.tpu.synchronize()
    return result, len(explanation.compiles)


def test_a_pallas_kernel_has_one_program(device: torch.device) -> None:
    compiled = torch.compile(lambda x, y: add(x.sin(), y).sum(0), dynamic=True, fullgraph=True)
    counts = []
    for rows in (13, 9, 16, 11):
        x, y = torch.randn(rows, 4), torch.randn(rows, 4)
        result, count = compiles(functools.partial(compiled, x.to(device), y.to(device)))
        counts.append((count, counters["traced"]))
        assert_same(result, (x.sin() + 2 * y).sum(0))
    assert counts[1:] == [(0, counts[0][1])] * 3
    assert torch._dynamo.utils.counters["tpu_unbounded"] == {}


def test_gradients(device: torch.device) -> None:
    def loss(function: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y, squares = function(x.cos(), w)
        return (y * y).sum() + squares.sum()

    compiled = torch.compile(lambda x, w: loss(product, x, w), dynamic=True, fullgraph=True)
    w = torch.randn(4, 6)
    counts = []
    for rows in (13, 9, 16):
        x = torch.randn(rows, 4)
        theirs = [each.clone().requires_grad_() for each in (x, w)]
        expected = loss(lambda x, w: (x @ w, (x * x).sum(0)), *theirs)
        expected.backward()
        ours = [each.to(device).requires_grad_() for each in (x, w)]
        value, count = compiles(functools.partial(compiled, *ours))
        _, more = compiles(value.backward)
        counts.append(count + more)
        assert_same((value, [each.grad for each in ours]), (expected, [each.grad for each in theirs]))
    assert counts[1:] == [0, 0]
    assert torch._dynamo.utils.counters["tpu_unbounded"] == {}


def test_sizes_that_are_no_arguments(device: torch.device) -> None:
    """A result that is longer than its argument would have padding between valid elements."""
    twice = pallas.custom_jax_kernel(lambda x: jnp.concatenate([x, x]), name="twice", padding="zeros")
    compiled = torch.compile(lambda x: twice(x), dynamic=True, fullgraph=True)
    for rows in (4, 6, 9):
        x = torch.randn(rows, 3)
        assert_same(compiled(x.to(device)), torch.cat([x, x]))


def test_other_words() -> None:
    with pytest.raises(ValueError, match='padding is None or "zeros"'):
        pallas.custom_jax_kernel(lambda x: x, name="same", padding="ones")
