"""Pallas kernels on a device without a Pallas compiler."""

from __future__ import annotations

from typing import Any

import pytest
import torch

jax = pytest.importorskip("jax")
jnp = jax.numpy

import torchtpu.pallas as pallas  # noqa: E402
from jax.experimental import pallas as pl  # noqa: E402
from jax.experimental.pallas import tpu as pltpu  # noqa: E402

from tests.helpers import assert_same  # noqa: E402
from tests.kernels import samples  # noqa: E402


@pytest.mark.parametrize("block", [32, 128])
def test_product(block: int, device: torch.device) -> None:
    product = pallas.custom_jax_kernel(samples.matmul(block), name="product")
    x, y = torch.randn(256, 128), torch.randn(128, 256)
    torch.testing.assert_close(product(x.to(device), y.to(device)).cpu(), x @ y, atol=1e-4, rtol=1e-5)


def test_blocks_beyond_the_array(device: torch.device) -> None:
    softmax = pallas.custom_jax_kernel(samples.softmax, name="softmax")
    x = torch.randn(13, 16)
    assert_same(softmax(x.to(device)), x.softmax(-1))


def test_kernels_within_loops_branches_and_functions(device: torch.device) -> None:
    def repeated(x: jax.Array) -> jax.Array:
        x = jax.lax.fori_loop(0, 2, lambda _, x: samples.softmax(x), x)
        _, x = jax.lax.scan(lambda carry, row: (carry, samples.softmax(row)), 0, x[:, None])
        x = jax.lax.cond(x.sum() > 0, samples.softmax, lambda x: x, x[:, 0])
        return jax.jit(samples.softmax_with_gradient)(x)

    kernel = pallas.custom_jax_kernel(repeated)
    x = torch.randn(8, 8)
    expected = x
    for _ in range(5):
        expected = expected.softmax(-1)
    torch.testing.assert_close(kernel(x.to(device)).cpu(), expected)


def test_aliases_and_prefetched_scalars(device: torch.device) -> None:
    def gather(places: Any, x: Any, before: Any, result: Any) -> None:
        result[...] = before[...] + x[...]

    def add_rows(places: jax.Array, x: jax.Array, before: jax.Array) -> jax.Array:
        row = pl.BlockSpec((1, 1, x.shape[2]), lambda i, places: (i, 0, 0))
        return pl.pallas_call(
            gather,
            out_shape=before,
            grid_spec=pltpu.PrefetchScalarGridSpec(
                num_scalar_prefetch=1,
                grid=(places.shape[0],),
                in_specs=[pl.BlockSpec((1, 1, x.shape[2]), lambda i, places: (places[i], 0, 0)), row],
                out_specs=row,
            ),
            input_output_aliases={2: 0},
        )(places, x, before)

    kernel = pallas.custom_jax_kernel(add_rows)
    x, before = torch.randn(5, 1, 8), torch.randn(6, 1, 8)
    places = torch.tensor([4, 0], dtype=torch.int32)
    expected = before.clone()
    expected[:2] += x[places]
    assert_same(kernel(places.to(device), x.to(device), before.to(device)), expected)


def test_what_is_not_written_is_not_zero(device: torch.device) -> None:
    def kernel(x: Any, result: Any) -> None:
        result[0, 0] = x[0, 0]

    nothing = pallas.custom_jax_kernel(lambda x: pl.pallas_call(kernel, out_shape=x)(x), name="nothing")
    assert torch.isnan(nothing(torch.ones(2, 2, device=device)).cpu()).sum() == 3


def test_a_kernel_may_write_to_an_aliased_argument(device: torch.device) -> None:
    """On a TPU the argument and the result are one memory."""

    def add_one(x, given, result):  # type: ignore[no-untyped-def]
        given[...] = given[...] + x[...]

    def call(x, given):  # type: ignore[no-untyped-def]
        return pl.pallas_call(add_one, out_shape=given, input_output_aliases={1: 0})(x, given)

    x, given = torch.randn(8, 128), torch.randn(8, 128)
    result = pallas.custom_jax_kernel(call, name="aliased")(x.to(device), given.to(device))
    assert_same(result, x + given)


@pytest.mark.skipif(not hasattr(pl, "kernel"), reason="this JAX has no pl.kernel")
def test_a_kernel_of_one_core_writes_to_a_reference(device: torch.device) -> None:
    def call(x, start):  # type: ignore[no-untyped-def]
        def copy(x, total, buffer, semaphore):  # type: ignore[no-untyped-def]
            for source, target in ((x, buffer), (buffer, total)):
                moving = pltpu.make_async_copy(source, target, semaphore)
                moving.start()
                moving.wait()

        total = jax.new_ref(start)
        mesh = pltpu.create_tensorcore_mesh("core", num_cores=1)
        scratch = [pltpu.VMEM(x.shape, x.dtype), pltpu.SemaphoreType.DMA]
        pl.kernel(lambda x, *rest: copy(x, total, *rest), (), mesh=mesh, scratch_types=scratch)(x)
        return total[...]

    x = torch.randn(8, 128)
    result = pallas.custom_jax_kernel(call, name="of_one_core")(x.to(device), torch.zeros(8, 128).to(device))
    assert_same(result, x)
