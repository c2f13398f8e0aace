"""`torch.library.opcheck` of operators that users define."""

from typing import Any

import pytest
import torch
from torch.library import opcheck
from torch.testing._internal.optests.generate_tests import OpCheckError

REGISTRATION = "test_autograd_registration"


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return gradient * x.cos()


@torch.library.custom_op("torchtpu_opcheck::sine", mutates_args=())
def sine(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@sine.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


sine.register_autograd(Sine.backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))

library = torch.library.Library("torchtpu_opcheck", "FRAGMENT")
library.define("below(Tensor x) -> Tensor")
library.define("at(Tensor x) -> Tensor")
library.define("none(Tensor x) -> Tensor")
for key in ("CPU", "PrivateUse1"):
    library.impl("below", Sine.apply, key)
    library.impl("at", torch.sin, key)
    library.impl("none", lambda x: x.detach().sin(), key)
    library.impl("at", Sine.apply, f"Autograd{key}")


def test_a_custom_operator(device: torch.device) -> None:
    for x in (torch.randn(3, device=device), torch.randn(3, device=device, requires_grad=True)):
        assert set(opcheck(sine, (x,)).values()) == {"SUCCESS"}


@pytest.mark.parametrize("place", ["cpu", "tpu"])
def test_a_gradient_below_autograd_is_refused(device: torch.device, place: str) -> None:
    x = torch.randn(3, device=place, requires_grad=True)
    with pytest.raises(OpCheckError, match="has requires_grad=True but .* incorrectly registered"):
        opcheck(torch.ops.torchtpu_opcheck.below, (x,), test_utils=REGISTRATION)


@pytest.mark.parametrize("name", ["at", "none"])
@pytest.mark.parametrize("place", ["cpu", "tpu"])
def test_an_autograd_kernel_or_no_gradient_is_taken(device: torch.device, place: str, name: str) -> None:
    x = torch.randn(3, device=place, requires_grad=True)
    assert opcheck(getattr(torch.ops.torchtpu_opcheck, name), (x,), test_utils=REGISTRATION) == {
        REGISTRATION: "SUCCESS"
    }


def test_inputs_without_gradients_are_refused(device: torch.device) -> None:
    from torch.testing._internal.optests import autograd_registration_check

    with pytest.raises(RuntimeError, match="no inputs have requires_grad=True"):
        autograd_registration_check(torch.ops.torchtpu_opcheck.at.default, (torch.randn(3, device=device),), {})
