"""The first layer of a model: its parameters have gradients, and its input has none."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "BatchNorm1d": (lambda: nn.BatchNorm1d(3), (5, 3)),
    "BatchNorm1d_evaluation": (lambda: nn.BatchNorm1d(3).eval(), (5, 3)),
    "BatchNorm1d_without_statistics": (lambda: nn.BatchNorm1d(3, track_running_stats=False), (5, 3)),
    "BatchNorm2d": (lambda: nn.BatchNorm2d(3), (2, 3, 4, 4)),
    "InstanceNorm1d": (lambda: nn.InstanceNorm1d(3, affine=True), (2, 3, 4)),
    "SyncBatchNorm": (lambda: nn.SyncBatchNorm(3).eval(), (2, 3, 4, 4)),
    "GroupNorm": (lambda: nn.GroupNorm(3, 3), (2, 3, 4)),
    "LayerNorm": (lambda: nn.LayerNorm(4), (2, 3, 4)),
    "RMSNorm": (lambda: nn.RMSNorm(4), (2, 3, 4)),
    "PReLU": (nn.PReLU, (2, 3)),
    "Conv1d": (lambda: nn.Conv1d(3, 2, 2), (2, 3, 4)),
    "ConvTranspose1d": (lambda: nn.ConvTranspose1d(3, 2, 2), (2, 3, 4)),
    "LSTM": (lambda: nn.LSTM(3, 2), (4, 2, 3)),
    "GRU": (lambda: nn.GRU(3, 2), (4, 2, 3)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_parameters(name: str, device: torch.device) -> None:
    make, shape = LAYERS[name]

    def gradients(device: torch.device) -> list[Tensor]:
        torch.manual_seed(0)
        layer, x, weights = make(), torch.randn(shape), torch.randn(200)
        result = layer.to(device)(x.to(device))
        result = result[0] if isinstance(result, tuple) else result
        (result.flatten() * weights[: result.numel()].to(device)).sum().backward()
        return [parameter.grad.cpu() for parameter in layer.parameters()]

    torch.testing.assert_close(gradients(device), gradients(torch.device("cpu")), rtol=1e-4, atol=1e-5)
