"""Kernels for `python -m torchtpu kernels check`: a TPU's compiler accepts two of them and refuses three."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import torch
import torchtpu.pallas as pallas
from jax.experimental import pallas as pl

from tests.kernels.samples import matmul, softmax_with_gradient


def meta(*shape: int) -> torch.Tensor:
    return torch.empty(shape, device="meta")


def sort_rows(x: Any, result: Any) -> None:
    result[...] = jnp.sort(x[...], axis=-1)


def twice(x: Any, result: Any) -> None:
    result[...] = x[...] * 2


like = jax.ShapeDtypeStruct((256, 256), "float32")
pallas.custom_jax_kernel(matmul(128), name="product").example(
    meta(256, 256), jax.ShapeDtypeStruct((256, 256), "float32")
)
pallas.custom_jax_kernel(softmax_with_gradient, name="softmax").example(meta(16, 128))
pallas.custom_jax_kernel(matmul(100), name="odd").example(meta(200, 200), meta(200, 200))
pallas.custom_jax_kernel(lambda x: pl.pallas_call(sort_rows, out_shape=x)(x), name="sort").example(meta(8, 128))
pallas.custom_jax_kernel(lambda x: pl.pallas_call(twice, out_shape=x)(x), name="huge").example(meta(4096, 4096))
