"""`jax.lax.ragged_dot` in users' functions: computed as it stands on the CPU, by megablox in programs for a TPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

jax = pytest.importorskip("jax")

import torchtpu.pallas as pallas  # noqa: E402
from torchtpu.kernels import ragged, routing  # noqa: E402
from torchtpu.kernels.check import module_for  # noqa: E402
from torchtpu.kernels.operators import specs_of  # noqa: E402
from torchtpu.kernels.saved import gradient_calls, plan_for  # noqa: E402

# The last rows belong to no group, and one group is empty.
SIZES = (100, 0, 128, 20)


@pallas.custom_jax_kernel
def grouped(x, matrices, sizes):  # type: ignore[no-untyped-def]
    return jax.lax.ragged_dot(x, matrices, sizes)


def expected(x: torch.Tensor, matrices: torch.Tensor) -> torch.Tensor:
    parts = [part @ matrix for part, matrix in zip(x.split([*SIZES, x.shape[0] - sum(SIZES)]), matrices, strict=False)]
    return torch.cat([*parts, x.new_zeros(x.shape[0] - sum(SIZES), matrices.shape[2])])


def test_with_gradients(device: torch.device) -> None:
    torch.manual_seed(3)
    given = [torch.randn(256, 6), torch.randn(4, 6, 5)]
    sizes = torch.tensor(SIZES, dtype=torch.int32).to(device)
    ours = [each.to(device).requires_grad_() for each in given]
    theirs = [each.clone().requires_grad_() for each in given]
    result, other = grouped(*ours, sizes), expected(*theirs)
    gradient = torch.randn_like(other)
    result.backward(gradient.to(device))
    other.backward(gradient)
    torch.testing.assert_close(result.detach().cpu(), other.detach(), atol=1e-5, rtol=1e-5)
    for own, grad in zip(ours, theirs, strict=True):
        torch.testing.assert_close(own.grad.cpu(), grad.grad, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("form", [ragged.BY_MATRICES, ragged.BY_TRANSPOSED, ragged.OF_COLUMNS])
@pytest.mark.one_mode
def test_forms_of_megablox(form: Any, device: torch.device) -> None:
    """Interpreted, against JAX's own on the CPU."""
    contracting, rows, groups = form
    left = torch.randn(256, 128)
    right = torch.randn(256, 384) if form == ragged.OF_COLUMNS else torch.randn(4, 128, 128)
    numbers = jax.lax.RaggedDotDimensionNumbers((contracting, ((), ())), rows, groups)

    def own(left, right, sizes):  # type: ignore[no-untyped-def]
        return jax.lax.ragged_dot_general(left, right, sizes, numbers)

    def by_kernel(left, right, sizes):  # type: ignore[no-untyped-def]
        return ragged.ragged_product(form, left, right, sizes, left.dtype)

    given = [left.to(device), right.to(device), torch.tensor(SIZES, dtype=torch.int32).to(device)]
    kernels = [pallas.custom_jax_kernel(each, version=f"{each.__name__} {form}") for each in (own, by_kernel)]
    theirs, ours = (kernel(*given).cpu() for kernel in kernels)
    torch.testing.assert_close(ours, theirs, atol=1e-3, rtol=1e-4)


@pytest.mark.one_mode
def test_programs_for_a_tpu() -> None:
    def like(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    before = routing.routed["ragged_dot"]
    sizes = like(4, dtype=torch.int32)
    call, tensors = grouped._taken([like(256, 128), like(4, 128, 256), sizes], {})
    specs = specs_of(tensors)
    assert "tpu_custom_call" in module_for(call, specs, "v6e")
    assert routing.routed["ragged_dot"] == before + 1
    ((gradient, inputs),) = gradient_calls(call, specs, plan_for(call, specs), "cpu")
    text = module_for(gradient, inputs, "v6e")
    assert "tpu_custom_call" in text
    assert "chlo.ragged_dot" not in text
    # JAX's own program computes the sizes that megablox does not take.
    reason = "ragged_dot: rows and columns are no multiples of 128"
    before = routing.not_routed[reason]
    call, tensors = grouped._taken([like(250, 128), like(4, 128, 256), sizes], {})
    assert "chlo.ragged_dot" in module_for(call, specs_of(tensors), "v6e")
    assert routing.not_routed[reason] == before + 1
