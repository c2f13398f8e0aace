"""Rows of crates/aten/src/ops/elementwise/activation.rs."""

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.celu",
    "nn.functional.elu",
    "nn.functional.gelu",
    "nn.functional.glu",
    "nn.functional.hardshrink",
    "nn.functional.hardsigmoid",
    "nn.functional.hardswish",
    "nn.functional.hardtanh",
    "nn.functional.leaky_relu",
    "nn.functional.logsigmoid",
    "nn.functional.mish",
    "nn.functional.prelu",
    "nn.functional.relu",
    "nn.functional.relu6",
    "nn.functional.rrelu",
    "nn.functional.selu",
    "nn.functional.silu",
    "nn.functional.softplus",
    "nn.functional.softshrink",
    "nn.functional.softsign",
    "nn.functional.tanhshrink",
    "nn.functional.threshold",
)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("lower", [-5.0, 0.25])
def test_gradients_of_rrelu_in_evaluation(lower: float, in_place: bool, device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> torch.Tensor:
        x = torch.tensor([-1.5, 0.0, 2.0], device=on, requires_grad=True)
        rrelu = torch.nn.functional.rrelu_ if in_place else torch.nn.functional.rrelu
        rrelu(x.clone(), lower, 1.0).backward(torch.ones(3, device=on))
        return x.grad

    if in_place and lower < 0:
        assert "call out-of-place version instead" in str(check_refused(program, device))
    else:
        check(program, device)
