"""`torch.optim` and `torch.amp`: every form of a step gives the CPU's numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHAPES = [(3, 4), (5,), (), (2, 3, 2)]

# The optimizer, its options, and whether PyTorch has a fused form of it.
VARIANTS: dict[str, tuple[type[torch.optim.Optimizer], dict[str, Any], bool]] = {
    "sgd": (torch.optim.SGD, {"lr": 0.1}, True),
    "sgd_momentum": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}, True),
    "sgd_nesterov": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True, "maximize": True}, True),
    "adam": (torch.optim.Adam, {"lr": 0.01}, True),
    "adam_amsgrad": (torch.optim.Adam, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.1, "maximize": True}, True),
    "adamw": (torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.95), "eps": 1e-6}, True),
    "adamw_amsgrad": (torch.optim.AdamW, {"lr": 0.01, "amsgrad": True, "weight_decay": 0.3}, True),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.01}, False),
    "rmsprop_centered": (
        torch.optim.RMSprop,
        {"lr": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.1},
        False,
    ),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.1, "lr_decay": 0.1, "weight_decay": 0.1}, True),
    "adagrad_maximize": (torch.optim.Adagrad, {"lr": 0.1, "maximize": True, "initial_accumulator_value": 0.5}, True),
    "adadelta": (torch.optim.Adadelta, {"lr": 0.5}, False),
    "adamax": (torch.optim.Adamax, {"lr": 0.01}, False),
    "nadam": (torch.optim.NAdam, {"lr": 0.01}, False),
    "radam": (torch.optim.RAdam, {"lr": 0.01}, False),
    "asgd": (torch.optim.ASGD, {"lr": 0.01}, False),
    "rprop": (torch.optim.Rprop, {"lr": 0.01}, False),
}
FORMS = {"forloop": {"foreach": False}, "foreach": {"foreach": True}, "fused": {"fused": True}}
CASES = [(name, form) for name in VARIANTS for form in FORMS if form != "fused" or VARIANTS[name][2]]


def _parameters(values: list[Tensor], device: str | torch.device) -> list[nn.Parameter]:
    return [nn.Parameter(value.clone().to(device)) for value in values]


def _run(
    optimizer: type[torch.optim.Optimizer],
    options: dict[str, Any],
    values: list[Tensor],
    gradients: list[list[Tensor]],
    device: str | torch.device,
) -> list[Tensor]:
    parameters = _parameters(values, device)
    stepper = optimizer(parameters, **options)
    for step in gradients:
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.clone().to(device)
        stepper.step()
    state = [each for group in stepper.state.values() for each in group.values() if isinstance(each, Tensor)]
    return [each.detach().cpu() for each in (*parameters, *state)]


def _problem(steps: int = 4) -> tuple[list[Tensor], list[list[Tensor]]]:
    return [torch.randn(shape) for shape in SHAPES], [[torch.randn(shape) for shape in SHAPES] for _ in range(steps)]


@pytest.mark.parametrize("where", ["cpu", "tpu"])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("name", ["adam", "adamw", "sgd", "adagrad"])
def test_rates_of_one_element(name: str, shape: tuple[int, ...], where: str, mode: str, device: torch.device) -> None:
    """On the device or, as with CUDA, on the CPU."""
    optimizer, options, _ = VARIANTS[name]
    values, gradients = _problem(2)
    expected = _run(optimizer, {**options, "foreach": False}, values, gradients, "cpu")
    rate = torch.full(shape, options["lr"], device=where)
    actual = _run(optimizer, {**options, "lr": rate, "fused": True}, values, gradients, device)
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "form"), CASES)
def test_step(name: str, form: str, mode: str, device: torch.device) -> None:
    optimizer, options, _ = VARIANTS[name]
    values, gradients = _problem()
    expected = _run(optimizer, {**options, "foreach": False}, values, gradients, "cpu")
    actual = _run(optimizer, {**options, **FORMS[form]}, values, gradients, device)
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_learning_rate_tensor(name: str, form: str, mode: str, device: torch.device) -> None:
    optimizer, options, _ = VARIANTS[name]
    values, gradients = _problem()
    expected = _run(optimizer, {**options, "foreach": False}, values, gradients, "cpu")
    rate = torch.tensor(options["lr"], device=device)
    capturable = {} if form == "fused" else {"capturable": True}
    actual = _run(optimizer, {**options, "lr": rate, **capturable, **FORMS[form]}, values, gradients, device)
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", ["sgd_momentum", "adamw", "adagrad"])
def test_fused_in_other_types(name: str, dtype: torch.dtype, device: torch.device) -> None:
    optimizer, options, _ = VARIANTS[name]
    values, gradients = _problem(2)
    values = [value.to(dtype) for value in values]
    gradients = [[gradient.to(dtype) for gradient in step] for step in gradients]
    expected = _run(optimizer, {**options, "fused": True}, values, gradients, "cpu")
    actual = _run(optimizer, {**options, "fused": True}, values, gradients, device)
    tolerance = {"rtol": 2e-2, "atol": 2e-2} if dtype == torch.bfloat16 else {"rtol": 1e-6, "atol": 1e-7}
    torch.testing.assert_close(actual, expected, **tolerance)


SCHEDULES = {
    "step": lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5),
    "cosine": lambda optimizer: torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5),
    "one_cycle": lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=8),
    "warmup": lambda optimizer: torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4),
    "exponential": lambda optimizer: torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9),
    "sequential": lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
        optimizer,
        [
            torch.optim.lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=2),
            torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 0.8**epoch),
        ],
        milestones=[2],
    ),
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("form", FORMS)
def test_schedules(schedule: str, form: str, mode: str, device: torch.device) -> None:
    values, gradients = _problem(6)

    def run(on: str | torch.device, **options: bool) -> list[Tensor]:
        parameters = _parameters(values, on)
        optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9, **options)
        scheduler = SCHEDULES[schedule](optimizer)
        for step in gradients:
            for parameter, gradient in zip(parameters, step, strict=True):
                parameter.grad = gradient.to(on)
            optimizer.step()
            scheduler.step()
        return [each.detach().cpu() for each in parameters]

    torch.testing.assert_close(run(device, **FORMS[form]), run("cpu", foreach=False), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_schedule_does_not_recompile(form: str, device: torch.device) -> None:
    values, gradients = _problem(1)
    parameters = _parameters(values, device)
    optimizer = torch.optim.AdamW(parameters, lr=0.1, **FORMS[form])

    def step(rate: float) -> None:
        optimizer.param_groups[0]["lr"] = rate
        for parameter, gradient in zip(parameters, gradients[0], strict=True):
            parameter.grad = gradient.clone().to(device)
        optimizer.step()
        torch.tpu.synchronize()

    for rate in (0.1, 0.05, 0.02):
        step(rate)
    compiled = _compilations()
    for rate in (0.01, 0.005, 0.003):
        step(rate)
    assert _compilations() == compiled


def _compilations() -> int:
    return torch.tpu.cache_stats()["compiles"]


# ---- mixed precision -------------------------------------------------------------------------------------------


def _scaler_run(device: str | torch.device, form: str, bad_step: int | None, model: nn.Module, x: Tensor) -> list[Any]:
    model = copy.deepcopy(model).to(device)
    x = x.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, **FORMS[form])
    scaler = torch.amp.GradScaler(torch.device(device).type, init_scale=256.0, growth_interval=2)
    scales = []
    for step in range(5):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if step == bad_step:
            loss = loss * float("inf")
        scaler.scale(loss).backward()
        if form != "fused":
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1e6)
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    return [scales, [each.detach().cpu() for each in model.parameters()]]


@pytest.mark.parametrize("bad_step", [None, 2])
@pytest.mark.parametrize("form", FORMS)
def test_grad_scaler(form: str, bad_step: int | None, mode: str, device: torch.device) -> None:
    model, x = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(4, 6)
    scales, parameters = _scaler_run(device, form, bad_step, model, x)
    expected_scales, expected = _scaler_run("cpu", "forloop", bad_step, model, x)
    assert scales == expected_scales
    torch.testing.assert_close(parameters, expected, rtol=1e-4, atol=1e-6)


def test_autocast_with_grad_scaler(mode: str, device: torch.device) -> None:
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(device)
    x, target = torch.randn(16, 8, device=device), torch.randint(4, (16,), device=device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("tpu")
    losses = []
    for _ in range(10):
        optimizer.zero_grad()
        with torch.autocast("tpu", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), target)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_state_dict_moves_between_devices(device: torch.device) -> None:
    values, gradients = _problem(4)
    expected = _run(torch.optim.AdamW, {"lr": 0.01}, values, gradients, "cpu")
    parameters = _parameters(values, "cpu")
    state = None
    for step, on in zip(gradients, ("cpu", device, "cpu", device), strict=True):
        parameters = [nn.Parameter(each.detach().clone().to(on)) for each in parameters]
        optimizer = torch.optim.AdamW(parameters, lr=0.01)
        if state is not None:
            optimizer.load_state_dict(state)
        for parameter, gradient in zip(parameters, step, strict=True):
            parameter.grad = gradient.to(on)
        optimizer.step()
        state = optimizer.state_dict()
    actual = [each.detach().cpu() for each in parameters]
    torch.testing.assert_close(actual, expected[: len(actual)], rtol=1e-5, atol=1e-6)
