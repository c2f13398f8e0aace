"""Fake quantization, as in quantization-aware training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import assert_same, check, check_refused, moved

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
aten = torch.ops.aten


def check_call(operator: Callable[..., Any], device: torch.device, *args: Any) -> None:
    check(lambda on: operator(*moved(args, on)), device)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(("low", "high"), [(0, 255), (-128, 127), (-8, 7)])
def test_fake_quantize(low: int, high: int, dtype: torch.dtype, mode: str, device: torch.device) -> None:
    x = (torch.randn(5, 7) * 20).to(dtype)
    scale, zero_point = torch.rand(1) + 0.05, torch.randint(low, high + 1, (1,), dtype=torch.int32)
    check_call(aten.fake_quantize_per_tensor_affine_cachemask, device, x, scale.item(), zero_point.item(), low, high)
    for on in (0, 1):
        check_call(
            aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams,
            device,
            *(x, scale, zero_point, torch.tensor([on]), low, high),
        )
    scales, zero_points = torch.rand(7) + 0.05, torch.randint(low, high + 1, (7,), dtype=torch.int32)
    for points in (zero_points, zero_points + 0.25):
        check_call(aten.fake_quantize_per_channel_affine_cachemask, device, x, scales, points, 1, low, high)


def test_fake_quantize_what_is_not_finite(mode: str, device: torch.device) -> None:
    x = torch.tensor([torch.nan, torch.inf, -torch.inf, 1e30, -1e30, -0.0])
    check_call(aten.fake_quantize_per_tensor_affine_cachemask, device, x, 0.1, 3, 0, 255)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4, 1, 3)])
def test_fake_quantize_of_other_shapes(shape: tuple[int, ...], mode: str, device: torch.device) -> None:
    x = torch.randn(shape)
    check_call(torch.fake_quantize_per_tensor_affine, device, x, 0.3, 1, -8, 7)
    if x.dim() > 1:
        expected = torch.fake_quantize_per_tensor_affine(x.mT, 0.3, 1, -8, 7)
        assert torch.equal(torch.fake_quantize_per_tensor_affine(x.to(device).mT, 0.3, 1, -8, 7).cpu(), expected)


def test_learnable(mode: str, device: torch.device) -> None:
    """The scale and the zero point are trained as well."""

    def gradients(on: torch.device | str, by_channel: bool) -> list[Any]:
        torch.manual_seed(0)
        x = torch.randn(4, 6).to(on).requires_grad_()
        scale = (torch.rand(4 if by_channel else 1) + 0.1).to(on).requires_grad_()
        zero_point = (torch.randn(4 if by_channel else 1) * 3).to(on).requires_grad_()
        if by_channel:
            result = torch._fake_quantize_learnable_per_channel_affine(x, scale, zero_point, 0, -8, 7, 0.5)
        else:
            result = torch._fake_quantize_learnable_per_tensor_affine(x, scale, zero_point, -8, 7, 0.5)
        result.square().sum().backward()
        return [result.detach(), x.grad, scale.grad, zero_point.grad]

    for by_channel in (False, True):
        for one, other in zip(gradients(device, by_channel), gradients("cpu", by_channel), strict=True):
            torch.testing.assert_close(one.cpu(), other)


@pytest.mark.parametrize("is_symmetric", [False, True])
@pytest.mark.parametrize("by_channel", [False, True])
def test_fused_observer(by_channel: bool, is_symmetric: bool, mode: str, device: torch.device) -> None:
    """Its tensors follow the data. By channel, the first observation sets their sizes."""
    batches = [torch.randn(3, 5) * factor + shift for factor, shift in ((1, 0), (4, 1), (1e-6, 0), (0, 0), (2, 5))]

    def followed(on: torch.device | str) -> list[Any]:
        size = 0 if by_channel else 1
        state = [torch.full((size,), torch.inf), torch.full((size,), -torch.inf), torch.ones(size)]
        state = moved([*state, torch.zeros(size, dtype=torch.int32)], on)
        seen = []
        for step, batch in enumerate(batches):
            switches = [torch.tensor([int(step != 2)], device=on), torch.tensor([int(step != 3)], device=on)]
            result = torch.fused_moving_avg_obs_fake_quant(
                batch.to(on), *switches, *state, 0.3, 0, 127, 0, by_channel, is_symmetric
            )
            seen.append([each.cpu().clone() for each in (result, *state)])
        return seen

    assert_same(followed(device), followed("cpu"))


def test_training_for_quantization(mode: str, device: torch.device) -> None:
    """PyTorch's modules, with observers for activations and for weights."""
    torch.manual_seed(0)
    config = torch.ao.quantization.get_default_qat_qconfig()
    layers = [torch.ao.nn.qat.Linear(8, 16, qconfig=config), nn.ReLU(), torch.ao.nn.qat.Linear(16, 4, qconfig=config)]
    model, batches = nn.Sequential(*layers), [torch.randn(5, 8) for _ in range(4)]
    start = {name: value.clone() for name, value in model.state_dict().items()}

    def losses(on: torch.device | str) -> list[float]:
        model.load_state_dict(start)
        model.to(on)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for batch in batches:
            optimizer.zero_grad()
            loss = model(batch.to(on)).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    assert losses(device) == pytest.approx(losses("cpu"), rel=1e-4)


def test_what_does_not_fit_is_refused(device: torch.device) -> None:
    x = torch.rand(3, 4)

    def refused(operator: Callable[..., Any], *args: Any) -> None:
        check_refused(lambda on: operator(*moved(args, on)), device)

    refused(torch.fake_quantize_per_tensor_affine, x, 0.1, 3, 8, 7)
    refused(torch.fake_quantize_per_tensor_affine, x, 0.1, 300, 0, 255)
    refused(torch.fake_quantize_per_channel_affine, x, torch.rand(3), torch.zeros(4, dtype=torch.int32), 0, 0, 255)
    refused(torch.fake_quantize_per_channel_affine, x, torch.rand(3), torch.zeros(3, dtype=torch.int32), 1, 0, 255)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_weights_of_8_bits(dtype: torch.dtype, mode: str, device: torch.device) -> None:
    x, scales = torch.randn(5, 32).to(dtype), torch.rand(16).to(dtype)
    weight = torch.randint(-128, 128, (16, 32), dtype=torch.int8)
    expected = (x.double() @ weight.double().T * scales.double()).to(dtype)
    actual: Tensor = torch._weight_int8pack_mm(x.to(device), weight.to(device), scales.to(device))
    torch.testing.assert_close(actual.cpu(), expected)
