"""Training: common models, optimizers, losses and helpers give the same numbers as on the CPU."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from tests.settings import MODES, SEED
from tests.small_models import TASKS, Batch

STEPS = 12

# Distributed over models and modes, so that each form of each optimizer is used.
OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.02, momentum=0.9),
    "adam": functools.partial(torch.optim.Adam, lr=2e-3),
    "adamw": functools.partial(torch.optim.AdamW, lr=2e-3, weight_decay=0.05),
    "rmsprop": functools.partial(torch.optim.RMSprop, lr=5e-4),
    "adagrad": functools.partial(torch.optim.Adagrad, lr=0.01),
}
FORMS: dict[str, dict[str, bool]] = {
    "forloop": {"foreach": False},
    "foreach": {"foreach": True},
    "fused": {"fused": True},
}
RECIPES = [(name, form) for form in FORMS for name in OPTIMIZERS if (name, form) != ("rmsprop", "fused")]


def _recipe(task: str, mode: str) -> tuple[str, str]:
    return RECIPES[(list(TASKS).index(task) * len(MODES) + MODES.index(mode)) % len(RECIPES)]


@functools.cache
def _data(task: str) -> tuple[nn.Module, list[Batch]]:
    with torch.random.fork_rng(devices=[]):
        torch.random.default_generator.manual_seed(SEED)
        return TASKS[task].model(), [TASKS[task].batch() for _ in range(3)]


def _train(task: str, optimizer: str, device: str | torch.device, **options: bool) -> Tensor:
    """The losses of `STEPS` steps from the task's initial weights on its data."""
    initial, batches = _data(task)
    model = copy.deepcopy(initial).to(device)
    moved = [(tuple(each.to(device) for each in inputs), target.to(device)) for inputs, target in batches]
    stepper = OPTIMIZERS[optimizer](model.parameters(), **options)
    losses = []
    for step in range(STEPS):
        inputs, target = moved[step % len(moved)]
        stepper.zero_grad()
        loss = TASKS[task].loss(model(*inputs), target)
        loss.backward()
        stepper.step()
        losses.append(loss.detach())
    return torch.stack(losses).cpu()


@functools.cache
def _expected(task: str, optimizer: str) -> Tensor:
    return _train(task, optimizer, "cpu", foreach=False)


@pytest.mark.parametrize("task", TASKS)
def test_trains_as_on_cpu(task: str, mode: str, device: torch.device) -> None:
    optimizer, form = _recipe(task, mode)
    print(f"{optimizer} {form}")
    expected = _expected(task, optimizer)
    actual = _train(task, optimizer, device, **FORMS[form])
    torch.testing.assert_close(actual, expected, rtol=1e-3, atol=1e-4)
    assert expected[-3:].mean() < expected[:3].mean(), "it should learn something"


# ---- losses ------------------------------------------------------------------------------------------------------


def _log_probabilities(*shape: int) -> Tensor:
    return torch.randn(*shape).log_softmax(-1)


LOSSES: dict[str, tuple[nn.Module, Callable[[], tuple[Tensor, ...]]]] = {
    "cross_entropy": (nn.CrossEntropyLoss(), lambda: (torch.randn(6, 5), torch.randint(5, (6,)))),
    "cross_entropy_weighted": (
        nn.CrossEntropyLoss(weight=torch.rand(5) + 0.1, label_smoothing=0.1, ignore_index=2),
        lambda: (torch.randn(9, 5), torch.arange(9) % 5),
    ),
    "cross_entropy_images": (nn.CrossEntropyLoss(), lambda: (torch.randn(2, 4, 3, 3), torch.randint(4, (2, 3, 3)))),
    "cross_entropy_probabilities": (
        nn.CrossEntropyLoss(),
        lambda: (torch.randn(6, 5), torch.randn(6, 5).softmax(-1)),
    ),
    "nll": (nn.NLLLoss(), lambda: (_log_probabilities(6, 5), torch.randint(5, (6,)))),
    "mse": (nn.MSELoss(), lambda: (torch.randn(6, 5), torch.randn(6, 5))),
    "l1": (nn.L1Loss(), lambda: (torch.randn(6, 5), torch.randn(6, 5))),
    "smooth_l1": (nn.SmoothL1Loss(beta=0.5), lambda: (torch.randn(6, 5), torch.randn(6, 5))),
    "huber": (nn.HuberLoss(delta=0.7), lambda: (torch.randn(6, 5), torch.randn(6, 5))),
    "bce": (nn.BCELoss(), lambda: (torch.rand(6, 5), torch.rand(6, 5))),
    "bce_logits": (
        nn.BCEWithLogitsLoss(pos_weight=torch.tensor([1.0, 2.0, 0.5])),
        lambda: (torch.randn(6, 3), torch.rand(6, 3)),
    ),
    "kl_div": (
        nn.KLDivLoss(reduction="batchmean"),
        lambda: (_log_probabilities(6, 5), torch.randn(6, 5).softmax(-1)),
    ),
    "kl_div_log_target": (
        nn.KLDivLoss(reduction="sum", log_target=True),
        lambda: (_log_probabilities(6, 5), _log_probabilities(6, 5)),
    ),
    "cosine_embedding": (
        nn.CosineEmbeddingLoss(margin=0.1),
        lambda: (torch.randn(6, 5), torch.randn(6, 5), torch.tensor([1, -1, 1, -1, -1, 1])),
    ),
    "triplet_margin": (nn.TripletMarginLoss(), lambda: tuple(torch.randn(6, 5) for _ in range(3))),
    "hinge_embedding": (
        nn.HingeEmbeddingLoss(),
        lambda: (torch.randn(6, 5), torch.randint(2, (6, 5)) * 2 - 1),
    ),
    "margin_ranking": (
        nn.MarginRankingLoss(margin=0.2),
        lambda: (torch.randn(6), torch.randn(6), torch.randint(2, (6,)) * 2 - 1),
    ),
    "multi_margin": (nn.MultiMarginLoss(), lambda: (torch.randn(6, 5), torch.randint(5, (6,)))),
    "multilabel_soft_margin": (
        nn.MultiLabelSoftMarginLoss(),
        lambda: (torch.randn(6, 5), torch.randint(2, (6, 5)).float()),
    ),
    "gaussian_nll": (
        nn.GaussianNLLLoss(),
        lambda: (torch.randn(6, 5), torch.randn(6, 5), torch.rand(6, 5) + 0.1),
    ),
    "poisson_nll": (nn.PoissonNLLLoss(), lambda: (torch.randn(6, 5), torch.rand(6, 5) * 4)),
    "ctc": (
        nn.CTCLoss(),
        lambda: (
            _log_probabilities(10, 3, 6),
            torch.randint(1, 6, (3, 4)),
            torch.full((3,), 10),
            torch.tensor([4, 3, 2]),
        ),
    ),
}


@pytest.mark.one_mode
@pytest.mark.parametrize("name", LOSSES)
def test_loss(name: str, mode: str, device: torch.device) -> None:
    criterion, make = LOSSES[name]
    arguments = make()

    def run(on: str | torch.device) -> list[Tensor]:
        loss = copy.deepcopy(criterion).to(on)
        moved = [each.to(on) for each in arguments]
        floats = [each.requires_grad_() for each in moved if each.is_floating_point()]
        value = loss(*moved)
        gradients = torch.autograd.grad(value, floats, allow_unused=True)
        return [value.detach().cpu(), *(each.cpu() for each in gradients if each is not None)]

    torch.testing.assert_close(run(device), run("cpu"), rtol=1e-4, atol=1e-5)


# ---- around a step -----------------------------------------------------------------------------------------------


def _mlp_gradients(model: nn.Module, *losses: Tensor) -> list[Tensor]:
    for loss in losses:
        loss.backward()
    return [each.grad.cpu() for each in model.parameters() if each.grad is not None]


@pytest.mark.one_mode
def test_gradients_accumulate(mode: str, device: torch.device) -> None:
    initial, batches = _data("mlp")

    def run(on: str | torch.device) -> list[Tensor]:
        model = copy.deepcopy(initial).to(on)
        losses = [F.cross_entropy(model(inputs[0].to(on)), target.to(on)) / 3 for inputs, target in batches]
        return _mlp_gradients(model, *losses)

    torch.testing.assert_close(run(device), run("cpu"), rtol=1e-4, atol=1e-6)


@pytest.mark.one_mode
@pytest.mark.parametrize("norm_type", [2.0, float("inf")])
@pytest.mark.parametrize("foreach", [False, True])
def test_gradient_clipping(norm_type: float, foreach: bool, mode: str, device: torch.device) -> None:
    initial, batches = _data("mlp")
    inputs, target = batches[0]

    def run(on: str | torch.device) -> list[Tensor]:
        model = copy.deepcopy(initial).to(on)
        F.cross_entropy(model(inputs[0].to(on)), target.to(on)).backward()
        parameters = list(model.parameters())
        total = nn.utils.clip_grad_norm_(parameters, 0.1, norm_type=norm_type, foreach=foreach)
        nn.utils.clip_grad_value_(parameters, 0.01, foreach=foreach)
        return [total.cpu(), *(each.grad.cpu() for each in parameters)]

    torch.testing.assert_close(run(device), run("cpu"), rtol=1e-4, atol=1e-6)


@pytest.mark.one_mode
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoint_replays_dropout(use_reentrant: bool, mode: str, device: torch.device) -> None:
    layers = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.ReLU(), nn.Linear(64, 4)).to(device)
    x = torch.randn(8, 16, device=device, requires_grad=True)

    def run(*, recompute: bool) -> tuple[Tensor, ...]:
        torch.tpu.manual_seed(7)
        y = checkpoint(layers, x, use_reentrant=use_reentrant) if recompute else layers(x)
        # Draws between forward and backward must not affect the replay.
        torch.rand(3, device=device)
        return (y, *torch.autograd.grad(y.square().sum(), x)) if not use_reentrant else _backward(y)

    def _backward(y: Tensor) -> tuple[Tensor, ...]:
        x.grad = None
        y.square().sum().backward()
        return y, x.grad

    for replayed, plain in zip(run(recompute=True), run(recompute=False), strict=True):
        torch.testing.assert_close(replayed.cpu(), plain.cpu())


def test_autocast_in_each_mode(mode: str, device: torch.device) -> None:
    _check_autocast("mlp", device)


@pytest.mark.parametrize("task", ["resnet", "gpt_sdpa", "lstm"])
def test_autocast(task: str, device: torch.device) -> None:
    _check_autocast(task, device)


def _check_autocast(task: str, device: torch.device) -> None:
    initial, batches = _data(task)
    inputs, target = batches[0]

    def run(on: str | torch.device, **options: Any) -> tuple[Tensor, list[Tensor]]:
        model = copy.deepcopy(initial).to(on)
        with torch.autocast(torch.device(on).type, **options):
            logits = model(*(each.to(on) for each in inputs))
            loss = TASKS[task].loss(logits, target.to(on))
        loss.backward()
        return logits, [each.grad.float().cpu() for each in model.parameters()]

    exact_logits, exact = run("cpu", enabled=False)
    logits, gradients = run(device, dtype=torch.bfloat16)
    assert logits.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float().cpu(), exact_logits, rtol=0.1, atol=0.1)
    for gradient, reference in zip(gradients, exact, strict=True):
        assert (gradient - reference).norm() <= 0.15 * reference.norm() + 1e-2


@pytest.mark.one_mode
def test_packed_sequences(mode: str, device: torch.device) -> None:
    lstm = nn.LSTM(6, 8, bidirectional=True)
    lengths, x = torch.tensor([5, 3, 2]), torch.randn(5, 3, 6)

    def run(on: str | torch.device) -> list[Tensor]:
        model = copy.deepcopy(lstm).to(on)
        packed = nn.utils.rnn.pack_padded_sequence(x.to(on), lengths)
        output, (hidden, cell) = model(packed)
        padded, _ = nn.utils.rnn.pad_packed_sequence(output)
        (padded.square().sum() + hidden.sum() + cell.sum()).backward()
        return [each.detach().cpu() for each in (padded, hidden, cell, *(p.grad for p in model.parameters()))]

    torch.testing.assert_close(run(device), run("cpu"), rtol=1e-4, atol=1e-5)


@pytest.mark.one_mode
@pytest.mark.parametrize("cell", [nn.RNN, nn.LSTM, nn.GRU])
def test_recurrent_layers(cell: type[nn.RNNBase], mode: str, device: torch.device) -> None:
    _check_recurrent(cell(6, 8, num_layers=2, bidirectional=True), device)


@pytest.mark.parametrize(
    ("cell", "options"),
    [
        (nn.RNN, {"nonlinearity": "relu"}),
        (nn.LSTM, {"bias": False}),
        (nn.LSTM, {"proj_size": 3}),
        (nn.GRU, {"bias": False, "batch_first": True}),
    ],
)
def test_recurrent_options(cell: type[nn.RNNBase], options: dict[str, Any], device: torch.device) -> None:
    _check_recurrent(cell(6, 8, num_layers=2, **options), device)


def _check_recurrent(layers: nn.RNNBase, device: torch.device) -> None:
    x = torch.randn(4, 3, 6)

    def run(on: str | torch.device) -> list[Tensor]:
        model = copy.deepcopy(layers).to(on)
        moved = x.to(on).requires_grad_()
        output, state = model(moved)
        states = state if isinstance(state, tuple) else (state,)
        sum(each.square().sum() for each in (output, *states)).backward()
        return [each.detach().cpu() for each in (output, *states, moved.grad, *(p.grad for p in model.parameters()))]

    torch.testing.assert_close(run(device), run("cpu"), rtol=1e-4, atol=1e-5)


def test_moving_keeps_parameters(device: torch.device) -> None:
    model = nn.ModuleList([nn.Linear(4, 4), nn.Linear(4, 4)])
    model[1].weight = model[0].weight
    weight, optimizer = model[0].weight, torch.optim.SGD(model.parameters(), lr=1.0)
    model.to(device)
    assert model[0].weight is weight
    assert model[1].weight is weight
    before = weight.detach().cpu()
    model[1](model[0](torch.randn(2, 4, device=device))).sum().backward()
    optimizer.step()
    torch.testing.assert_close(weight.detach().cpu(), before - weight.grad.cpu())
    model.cpu()
    assert model[0].weight is weight
    assert weight.device.type == weight.grad.device.type == "cpu"
