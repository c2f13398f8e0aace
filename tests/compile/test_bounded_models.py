"""Compiled models whose batches, lengths or images change in size: one program for all sizes.

The host pads with NaN, so padding that affects a result is detected.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._dynamo.utils import counters

from tests.helpers import assert_same, programs_made
from tests.small_models import TASKS

pytestmark = pytest.mark.usefixtures("fresh_dynamo")


def _check_training(
    model: nn.Module,
    batch: Callable[[int], tuple[Any, ...]],
    sizes: list[int],
    device: torch.device,
    dynamic: bool | None = True,
) -> None:
    """Trains a compiled copy of the model on batches of different sizes, and compares it with the CPU. The loss is
    part of the model."""
    on_device = copy.deepcopy(model).to(device)
    compiled = torch.compile(on_device, dynamic=dynamic)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.05) for each in (model, on_device)]
    used = 0
    for size in sizes:
        data = batch(size)
        expected = model(*data)
        before = programs_made()
        moved = [each.to(device) for each in data]
        if not dynamic:
            for each in moved:
                torch._dynamo.mark_dynamic(each, 0)
        loss = compiled(*moved)
        loss.backward()
        used += programs_made() - before
        expected.backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        torch.testing.assert_close(loss.detach().cpu(), expected.detach(), rtol=1e-3, atol=1e-5)
    for one, other in zip(on_device.state_dict().values(), model.state_dict().values(), strict=True):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)
    assert not counters["tpu_unbounded"]
    # Forward, backward, and the initial gradient of the loss.
    assert used <= 3


class _WithLoss(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(self.model(x).flatten(0, -2), y.flatten(), ignore_index=-1)


@pytest.mark.parametrize("task", ["mlp", "resnet"])
def test_batches_of_different_sizes(task: str, device: torch.device) -> None:
    model = _WithLoss(TASKS[task].model())
    shape = (12,) if task == "mlp" else (3, 16, 16)

    def batch(size: int) -> tuple[Tensor, Tensor]:
        return torch.randn(size, *shape), torch.randint(5, (size,))

    _check_training(model, batch, [30, 8, 21, 17, 5, 32, 9], device, dynamic=None)


def test_images_of_different_sizes(device: torch.device) -> None:
    def batch(size: int) -> tuple[Tensor, Tensor]:
        return torch.randn(4, 3, size, size), torch.randint(5, (4,))

    model = _WithLoss(TASKS["resnet"].model())
    _check_training(model, batch, [32, 20, 27, 17, 30, 21, 24], device)


class _Speech(nn.Module):
    """Speech recognition: convolutions that shorten the input, attention, and convolutions with position
    information."""

    def __init__(self) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv1d(1, 16, 10, stride=5), nn.GroupNorm(4, 16), nn.GELU(), nn.Conv1d(16, 16, 3, stride=2), nn.GELU()
        )
        self.places = nn.Conv1d(16, 16, 4, padding=2, groups=4)
        self.attention = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.depthwise = nn.Sequential(nn.Conv1d(16, 16, 5, padding=2, groups=16), nn.SiLU(), nn.Conv1d(16, 32, 1))
        self.letters = nn.Linear(16, 12)

    def forward(self, x: Tensor) -> Tensor:
        y = self.front(x)
        y = y + F.gelu(self.places(y)[..., :-1])
        y = self.attention(y.transpose(1, 2)).transpose(1, 2)
        y = y + F.glu(self.depthwise(y), 1)
        return self.letters(y.mean(-1))


def test_sounds_of_different_lengths(device: torch.device) -> None:
    def batch(length: int) -> tuple[Tensor, Tensor]:
        return torch.randn(3, 1, length), torch.randint(12, (3,))

    lengths = [400, *random.Random(2).sample(range(60, 400), 9)]
    _check_training(_WithLoss(_Speech()), batch, lengths, device)


# Dynamo and XLA take seconds for each; the others are slow tests. `make test` has a GPT below whose batches and lengths
# change.
MARKS = {"mlp": (), "gpt": pytest.mark.nightly}
SIZES = random.Random(0).sample(range(2, 40), 20)


@pytest.mark.parametrize("task", [pytest.param(task, marks=MARKS.get(task, pytest.mark.slow)) for task in TASKS])
def test_models_with_dynamic_sizes(task: str, device: torch.device) -> None:
    torch.manual_seed(0)
    batches = [TASKS[task].batch(size) for size in SIZES]
    on_cpu = TASKS[task].model()
    on_device = copy.deepcopy(on_cpu).to(device)
    losses: list[list[Tensor]] = []
    for model, called, place in (
        (on_cpu, on_cpu, torch.device("cpu")),
        (on_device, torch.compile(on_device, dynamic=True), device),
    ):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        losses.append([])
        for inputs, target in batches:
            optimizer.zero_grad()
            loss = TASKS[task].loss(called(*(each.to(place) for each in inputs)), target.to(place))
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.detach())
    torch.testing.assert_close(torch.stack(losses[1]).cpu(), torch.stack(losses[0]), rtol=1e-3, atol=1e-4)


class _Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(31, 24), nn.Embedding(256, 24)
        self.layers = nn.ModuleList([_Layer()])
        self.norm, self.head = nn.LayerNorm(24), nn.Linear(24, 31, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.words(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for layer in self.layers:
            y = layer(y)
        return self.head(self.norm(y))


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(24) for _ in range(2))
        self.qkv, self.out = nn.Linear(24, 72), nn.Linear(24, 24)
        self.mlp = nn.Sequential(nn.Linear(24, 96), nn.GELU(), nn.Linear(96, 24))

    def forward(self, x: Tensor) -> Tensor:
        split = self.qkv(self.norms[0](x)).view(*x.shape[:2], 3, 2, 12).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(*split, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        return x + self.mlp(self.norms[1](x))


def _words(batch: int, length: int) -> tuple[Tensor, Tensor]:
    target = torch.randint(31, (batch, length))
    target[0, -3:] = -1
    return torch.randint(31, (batch, length)), target


def test_gpt_of_twenty_lengths(device: torch.device) -> None:
    lengths = [250, *random.Random(0).sample(range(17, 250), 19)]
    _check_training(_WithLoss(_Gpt()), lambda length: _words(3, length), lengths, device)


def test_gpt_of_different_batches_and_lengths(device: torch.device) -> None:
    sizes = random.Random(1).sample(range(1000), 6)
    _check_training(
        _WithLoss(_Gpt()), lambda n: _words(4 + n % 4, 17 + n % 15) if n else _words(8, 32), [0, *sizes], device
    )


def test_generation_with_a_growing_cache(device: torch.device) -> None:
    def attend(
        query: Tensor, key: Tensor, value: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        return F.scaled_dot_product_attention(query, keys, values), keys, values

    def run(attend: Callable[..., Any], place: torch.device | str) -> list[Tensor]:
        torch.manual_seed(0)
        keys, values = torch.randn(2, 3, 2, 5, 4)
        given = torch.randn(20, 3, 3, 2, 1, 4)
        keys, values = keys.to(place), values.to(place)
        results = []
        for new in given:
            for cache in (keys, values):
                torch._dynamo.mark_dynamic(cache, 2, min=2, max=40)
            result, keys, values = attend(*new.to(place), keys, values)
            results.append(result)
        return [*results, keys, values]

    with torch.no_grad():
        before = programs_made()
        results = run(torch.compile(attend), device)
        # Slices of `new` need programs too: one for each of the first few offsets.
        assert programs_made() - before < 12
        assert_same(results, run(attend, "cpu"))
    assert not counters["tpu_unbounded"]


def test_a_whole_step_of_different_sizes(device: torch.device) -> None:
    torch.manual_seed(0)
    model = _WithLoss(nn.Linear(6, 5))
    on_device = copy.deepcopy(model).to(device)
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, on_device)]

    def step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(x, y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = torch.tpu.compile_step(step, dynamic=True)
    for size in (20, 9, 30, 17):
        x, y = torch.randn(size, 6), torch.randint(5, (size,))
        loss = compiled(on_device, optimizers[1], x.to(device), y.to(device))
        torch.testing.assert_close(loss.cpu(), step(model, optimizers[0], x, y))


def test_a_decomposition_that_depends_on_the_sizes(device: torch.device) -> None:
    """PyTorch's trace then takes a size for a constant. The programs of other sizes do not."""
    with torch.library._scoped_library("torchtpu_test", "FRAGMENT") as library:
        library.define("times_rows(Tensor x) -> Tensor")
        library.impl("times_rows", lambda x: x * int(x.shape[0]), "CompositeExplicitAutograd")
        torch.library.register_fake("torchtpu_test::times_rows", torch.empty_like, lib=library)

        def function(x: Tensor) -> Tensor:
            return torch.ops.torchtpu_test.times_rows(x + 1) - torch.eye(x.shape[0], x.shape[1], device=x.device)

        compiled = torch.compile(function, dynamic=True)
        for size in (30, 23, 28, 23):
            x = torch.randn(size, 3)
            assert_same(compiled(x.to(device)), function(x))


def test_gaussian_process(device: torch.device) -> None:
    def likelihood(points: Tensor, values: Tensor) -> Tensor:
        kernel = torch.exp(-(points[:, None] - points[None]).square())
        factor = torch.linalg.cholesky(kernel + 0.3 * torch.eye(points.shape[0], device=points.device))
        fit = torch.cholesky_solve(values[:, None], factor).squeeze(-1)
        return (fit * values).sum() + 2 * factor.diagonal().log().sum()

    compiled = torch.compile(likelihood, dynamic=True, fullgraph=True)
    for number, size in enumerate((30, 23, 28, 19)):
        points, values = torch.randn(2, size)
        before = programs_made()
        on_device = points.to(device).requires_grad_()
        loss = compiled(on_device, values.to(device))
        loss.backward()
        assert number == 0 or programs_made() == before
        expected = points.requires_grad_()
        likelihood(expected, values).backward()
        torch.testing.assert_close(on_device.grad.cpu(), expected.grad, rtol=1e-3, atol=1e-3)
