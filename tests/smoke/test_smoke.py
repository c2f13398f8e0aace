"""The shortest test of the device. `make smoke` runs it with programs compiled as for users."""

from __future__ import annotations

import copy
import io

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tests.helpers import check, check_python, check_refused

# A step of each kind of layer. Sizes are small, so that compiling is fast.
LAYERS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "linear": (nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 3)), (4, 6)),
    "convolution": (nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()), (2, 2, 5, 5)),
    "attention": (nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (2, 3, 8)),
}


def test_operators(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> object:
        x = torch.arange(12.0, device=on).reshape(3, 4)
        y = (x @ x.t()).softmax(-1).cumsum(0)
        values, places = x.sin().sort(dim=1)
        return y, values, places, x[x > 5], torch.linalg.solve(y + torch.eye(3, device=on), x), x.to(torch.int64) // 3

    check(program, device)


def test_views_and_writes(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> object:
        x = torch.zeros(4, 5, device=on)
        row, corner = x[1], x.t()[2:, :2]
        row.add_(1)
        corner.mul_(3)
        x[:, 0] = torch.arange(4.0, device=on)
        x[[0, 2]] += row
        return x, row, corner

    check(program, device)


@pytest.mark.parametrize("name", LAYERS)
def test_training(name: str, device: torch.device, mode: str) -> None:
    layer, size = LAYERS[name]
    inputs = [torch.randn(size) for _ in range(2)]

    def train(on: torch.device | str) -> list[Tensor]:
        model = copy.deepcopy(layer).to(on)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        losses = []
        for x in inputs:
            optimizer.zero_grad()
            loss = model(x.to(on)).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach().cpu())
        return losses

    torch.testing.assert_close(train(device), train("cpu"), rtol=1e-4, atol=1e-5)


def test_compiled(device: torch.device, fresh_dynamo: None) -> None:
    def function(x: Tensor, weight: Tensor) -> Tensor:
        return F.layer_norm(x @ weight, (4,)).relu().sum()

    def gradients(on: torch.device | str, call: object) -> tuple[Tensor, ...]:
        x = torch.linspace(-1, 1, 12).reshape(3, 4).to(on).requires_grad_()
        weight = torch.linspace(0, 2, 16).reshape(4, 4).to(on).requires_grad_()
        call(x, weight).backward()
        return x.grad.cpu(), weight.grad.cpu()

    expected = gradients("cpu", function)
    torch.testing.assert_close(gradients(device, torch.compile(function)), expected, rtol=1e-4, atol=1e-5)


def test_errors_name_what_is_wrong(device: torch.device, mode: str) -> None:
    check_refused(lambda on: torch.ones(2, 3, device=on) @ torch.ones(2, 3, device=on), device)
    with pytest.raises(IndexError, match="out of bounds"):
        torch.arange(3, device=device)[torch.tensor([7], device=device)].cpu()
    assert torch.ones(2, device=device).sum().item() == 2


def test_saving_and_loading(device: torch.device) -> None:
    file = io.BytesIO()
    torch.save({"weight": torch.arange(3.0, device=device)}, file)
    file.seek(0)
    assert torch.load(file)["weight"].device.type == "tpu"


def test_random_numbers_follow_the_seed(device: torch.device, mode: str) -> None:
    torch.manual_seed(5)
    first = torch.randn(4, device=device)
    torch.manual_seed(5)
    assert torch.equal(first, torch.randn(4, device=device))


def test_the_cache_serves_the_next_process() -> None:
    code = """
import torch
(torch.ones(7, device="tpu") * 3).cpu()
stats = torch.tpu.cache_stats()
print(stats["compiles"], stats["disk_hits"])
"""
    compiles, _ = map(int, check_python(code).split())
    again, hits = map(int, check_python(code).split())
    assert again == 0
    assert hits >= compiles
