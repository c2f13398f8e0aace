"""Gradients of kernels: by JAX, by a custom_vjp rule, by a reference, by the user, or refused by name."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

jax = pytest.importorskip("jax")
jnp = jax.numpy

import torchtpu.pallas as pallas  # noqa: E402
from torchtpu.kernels.calls import Spec  # noqa: E402

from tests.helpers import assert_same  # noqa: E402
from tests.kernels import samples  # noqa: E402
from tests.kernels.samples import call_of  # noqa: E402


def gradient(function: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    x = x.detach().requires_grad_()
    y = function(x)
    (y * torch.linspace(0, 1, y.numel(), device=x.device).reshape(y.shape)).sum().backward()
    return y.detach(), x.grad


def test_rules_of_custom_vjp_save_what_they_say(device: torch.device, mode: str) -> None:
    softmax = pallas.custom_jax_kernel(samples.softmax_with_gradient, name="softmax")
    x = torch.randn(13, 16)
    assert_same(gradient(softmax, x.to(device)), gradient(lambda x: x.softmax(-1), x))
    # Other tests may have called the same function with other shapes.
    change = ("saving", (Spec(torch.float32, (13, 16)),))
    saving = [call for call in call_of(softmax, 1)._derived.values() if call.change == change]
    assert len(saving) == 1
    # The result itself is saved. The value that the rule computes only for the gradient is an additional result.
    assert saving[0].structure == ["tuple", "t", ["list", "t"]]


def test_a_second_gradient_of_a_rule_is_refused(device: torch.device) -> None:
    softmax = pallas.custom_jax_kernel(samples.softmax_with_gradient, name="softmax")
    x = torch.randn(13, 16, device=device, requires_grad=True)
    (first,) = torch.autograd.grad((softmax(x) * x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="softmax has no second gradient"):
        first.square().sum().backward()


def test_second_gradients(device: torch.device) -> None:
    cube = pallas.custom_jax_kernel(lambda x: x**3, name="cube")
    x = torch.randn(5, device=device, requires_grad=True)
    (first,) = torch.autograd.grad(cube(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second.cpu(), 6 * x.detach().cpu())


def test_a_bare_kernel_has_none(device: torch.device) -> None:
    softmax = pallas.custom_jax_kernel(samples.softmax, name="softmax")
    x = torch.randn(13, 16, device=device, requires_grad=True)
    y = softmax(x)
    torch.testing.assert_close(y.detach().cpu(), x.detach().cpu().softmax(-1))
    with pytest.raises(RuntimeError, match="softmax has no gradient.*register_autograd.*reference.*custom_vjp"):
        y.sum().backward()


def test_reference(device: torch.device) -> None:
    softmax = pallas.custom_jax_kernel(samples.softmax, name="softmax", reference=lambda x: jax.nn.softmax(x, axis=-1))
    x = torch.randn(13, 16)
    assert_same(gradient(softmax, x.to(device)), gradient(lambda x: x.softmax(-1), x))
    batch = torch.randn(3, 9, 16)
    assert_same(
        gradient(torch.vmap(softmax), batch.to(device)),
        gradient(torch.vmap(lambda x: x.softmax(-1)), batch),
    )


def test_the_users_gradient_comes_first(device: torch.device) -> None:
    @functools.partial(pallas.jax_op, "torchtpu_tests::cube")
    def cube(x: jax.Array) -> jax.Array:
        return x**3

    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x * 100

    cube.register_autograd(backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
    x = torch.tensor([1.0, 2.0], device=device, requires_grad=True)
    cube(x).sum().backward()
    assert x.grad.tolist() == [100.0, 200.0]


def test_integers_have_no_gradient(device: torch.device) -> None:
    both = pallas.custom_jax_kernel(lambda x, n: (x * n, n + 1), name="both")
    x = torch.ones(3, device=device, requires_grad=True)
    n = torch.arange(3, dtype=torch.int32, device=device)
    y, more = both(x, n)
    assert not more.requires_grad
    y.sum().backward()
    assert x.grad.tolist() == [0.0, 1.0, 2.0]


def test_only_gradients_that_are_wanted(device: torch.device) -> None:
    product = pallas.custom_jax_kernel(lambda x, y: x @ y, name="product")
    x, y = torch.randn(3, 4), torch.randn(4, 2)
    ours, theirs = y.to(device).requires_grad_(), y.clone().requires_grad_()
    product(x.to(device), ours).sum().backward()
    (x @ theirs).sum().backward()
    assert_same(ours.grad, theirs.grad)
