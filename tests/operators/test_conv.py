"""Rows of crates/aten/src/ops/nn/conv.rs."""

from __future__ import annotations

import torch

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.conv1d",
    "nn.functional.conv2d",
    "nn.functional.conv3d",
    "nn.functional.conv_transpose1d",
    "nn.functional.conv_transpose2d",
    "nn.functional.conv_transpose3d",
)


def test_an_input_without_channels(device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.zeros(2, 0, 15, device=device, requires_grad=True)
        weight = torch.zeros(8, 0, 2, device=device, requires_grad=True)
        bias = torch.zeros(8, device=device, requires_grad=True)
        result = torch.nn.functional.conv1d(x, weight, bias, stride=2)
        return [result.detach(), *torch.autograd.grad(result.sum(), (x, weight))]

    check(program, device)
