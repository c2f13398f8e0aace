"""torch.jit.trace and torch.jit.script of modules on the device."""

from __future__ import annotations

import io

import pytest
import torch
from torch import Tensor, nn

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated"),
    pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean might cause the trace to be incorrect"),
]


class Loop(nn.Module):
    """Loops, reads a number from the device, and returns views."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor, steps: int) -> tuple[Tensor, list[Tensor]]:
        for _ in range(steps):
            x = torch.relu(self.linear(x)) if bool(x.sum() > 0) else x - self.linear(x) * 0.1
        return x, [x[:, :2], x[:, 2:]]


def test_a_scripted_loop(device: torch.device, mode: str) -> None:
    module = Loop()
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    expected, parts = module(x, 3)
    expected.sum().backward()
    gradient = module.linear.weight.grad
    module.zero_grad()
    scripted = torch.jit.script(module.to(device))
    for _ in range(3):
        actual, shown = scripted(x.to(device), 3)
        torch.testing.assert_close(actual.cpu(), expected)
        torch.testing.assert_close([each.cpu() for each in shown], parts)
    actual.sum().backward()
    torch.testing.assert_close(module.linear.weight.grad.cpu(), gradient)


def chosen(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    mask = x[:, 0] < 0.5
    places = torch.arange(x.size(0), device=x.device)[mask]
    written = x.clone()
    written[places, 1:] = -1.0
    return x[mask], x[places, 0], written


def test_scripted_indices(device: torch.device, mode: str) -> None:
    """TorchScript makes the lists of indices."""
    x = torch.rand(7, 3, generator=torch.Generator().manual_seed(0))
    scripted = torch.jit.script(chosen)
    for expected, actual in zip(chosen(x), scripted(x.to(device)), strict=True):
        assert torch.equal(actual.cpu(), expected)


LAYERS = {
    "conv1d": (nn.Conv1d(3, 4, 3), (2, 3, 8)),
    "conv2d": (nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.MaxPool2d(2)), (2, 3, 8, 8)),
    "conv_transpose2d": (nn.ConvTranspose2d(3, 4, 3, stride=2), (2, 3, 5, 5)),
    "linear": (nn.Sequential(nn.Linear(8, 4), nn.LayerNorm(4), nn.GELU()), (3, 8)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0), (3, 2, 8)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_traced_layers(name: str, device: torch.device, mode: str) -> None:
    """The meta kernels that a new call asks are not traced, and convolutions are recorded as on the CPU."""
    layer, sizes = LAYERS[name]
    layer = layer.eval().to(device)
    x = torch.randn(sizes, generator=torch.Generator().manual_seed(0)).to(device)
    traced = torch.jit.trace(layer, (x,), check_trace=False)
    file = io.BytesIO()
    torch.jit.save(traced, file)
    file.seek(0)
    loaded = torch.jit.load(file, map_location=device)
    for module in (traced, loaded):
        torch.testing.assert_close(module(x * 2), layer(x * 2))
    file.seek(0)
    on_cpu = torch.jit.load(file, map_location="cpu")(x.cpu())
    actual = traced(x)
    torch.testing.assert_close(actual.cpu(), on_cpu, rtol=1e-4, atol=1e-5)
    actual.sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
