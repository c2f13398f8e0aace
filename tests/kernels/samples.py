"""Functions on JAX arrays, and Pallas kernels, that the tests call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import torch
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

# Functions of two float tensors of shapes [8, 16] and [16, 4], in JAX and in torch.
FUNCTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "relu of a product": (lambda x, w: jax.nn.relu(x @ w), lambda x, w: (x @ w).relu()),
    "tanh": (lambda x, w: jnp.tanh(x) @ w, lambda x, w: x.tanh() @ w),
    "softmax": (lambda x, w: jax.nn.softmax(x @ w, axis=-1), lambda x, w: (x @ w).softmax(-1)),
    "gelu": (lambda x, w: jax.nn.gelu(x @ w, approximate=False), lambda x, w: torch.nn.functional.gelu(x @ w)),
    "where": (lambda x, w: jnp.where(x > 0, x, 0.1 * x) @ w, lambda x, w: torch.where(x > 0, x, 0.1 * x) @ w),
    "norm": (
        lambda x, w: (x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)) @ w,
        lambda x, w: (x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt()) @ w,
    ),
    "several": (lambda x, w: (x @ w, w.sum(0)), lambda x, w: (x @ w, w.sum(0))),
    "cumsum": (lambda x, w: jnp.cumsum(x, 0) @ w, lambda x, w: x.cumsum(0) @ w),
    "scan": (
        lambda x, w: jax.lax.scan(lambda c, row: (jnp.tanh(c + row), c), x[0], x)[0] @ w,
        lambda x, w: functools.reduce(lambda c, row: (c + row).tanh(), x, x[0]) @ w,
    ),
    "concatenate": (
        lambda x, w: jnp.concatenate([x @ w, (x @ w) ** 2], axis=1).T,
        lambda x, w: torch.cat([x @ w, (x @ w) ** 2], 1).T.contiguous(),
    ),
}


def matmul(block: int) -> Callable[..., Any]:
    """A matrix product. All sizes are multiples of the block's."""

    def kernel(x: Any, y: Any, result: Any, sums: Any) -> None:
        @pl.when(pl.program_id(2) == 0)
        def _() -> None:
            sums[...] = jnp.zeros_like(sums)

        sums[...] += jnp.dot(x[...], y[...], preferred_element_type=jnp.float32)

        @pl.when(pl.program_id(2) == pl.num_programs(2) - 1)
        def _() -> None:
            result[...] = sums[...].astype(result.dtype)

    def product(x: jax.Array, y: jax.Array) -> jax.Array:
        (rows, inner), columns = x.shape, y.shape[1]
        return pl.pallas_call(
            kernel,
            out_shape=jax.ShapeDtypeStruct((rows, columns), x.dtype),
            grid=(rows // block, columns // block, inner // block),
            in_specs=[
                pl.BlockSpec((block, block), lambda i, j, k: (i, k)),
                pl.BlockSpec((block, block), lambda i, j, k: (k, j)),
            ],
            out_specs=pl.BlockSpec((block, block), lambda i, j, k: (i, j)),
            scratch_shapes=[pltpu.VMEM((block, block), jnp.float32)],
            name="product",
        )(x, y)

    return product


def softmax_kernel(x: Any, result: Any) -> None:
    exponents = jnp.exp(x[...] - x[...].max(axis=-1, keepdims=True))
    result[...] = exponents / exponents.sum(axis=-1, keepdims=True)


def softmax(x: jax.Array) -> jax.Array:
    """The softmax of each row, computed by blocks of rows. The last block extends beyond the array."""
    rows = pl.BlockSpec((8, x.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(softmax_kernel, out_shape=x, grid=(pl.cdiv(x.shape[0], 8),), in_specs=[rows], out_specs=rows)(
        x
    )


@jax.custom_vjp
def softmax_with_gradient(x: jax.Array) -> jax.Array:
    return softmax(x)


def _forward(x: jax.Array) -> Any:
    y = softmax(x)
    return y, (y, jnp.exp(y))  # exp(y) is saved in addition to the result


def _backward(saved: Any, gradient: jax.Array) -> tuple[jax.Array]:
    y, exponents = saved
    gradient = gradient * jnp.log(exponents)
    return (gradient - y * gradient.sum(axis=-1, keepdims=True),)


softmax_with_gradient.defvjp(_forward, _backward)


def call_of(kernel: Any, tensors: int) -> Any:
    """A call of the kernel with this number of tensors."""
    from torchtpu.kernels.calls import Layout

    return kernel._kernel.call(Layout(tuple(("t", i) for i in range(tensors))))
