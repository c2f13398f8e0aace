"""The models of the benchmark of changing sizes, and batches of a size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from models import BATCH, MODELS, VOCABULARY, WIDTH
from torch import Tensor, nn

CLASSES, EXPERTS, STATES = 10, 4, 4


class Recurrent(nn.Module):
    """An LSTM over tokens, with a prediction for each."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.tokens(tokens))[0]).flatten(0, 1)


class StateSpace(nn.Module):
    """A Mamba block: a convolution, and a scan whose decay and input depend on the token."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.convolution = nn.Conv1d(WIDTH, WIDTH, 4, padding=3, groups=WIDTH)
        self.step, self.read, self.write = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, STATES), nn.Linear(WIDTH, STATES)
        self.decay = nn.Parameter(torch.arange(1.0, STATES + 1).log().expand(WIDTH, STATES).clone())
        self.gate, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens)
        u = nn.functional.silu(self.convolution(x.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step = nn.functional.softplus(self.step(u)).unsqueeze(-1)
        logs = (-self.decay.exp() * step).clamp(min=-0.3).cumsum(1)
        # The scan in closed form: the sum of the inputs, each decayed since its step.
        state = logs.exp() * ((step * u.unsqueeze(-1) * self.write(u).unsqueeze(2)) * (-logs).exp()).cumsum(1)
        y = (state * self.read(u).unsqueeze(2)).sum(-1)
        return self.head(y * nn.functional.silu(self.gate(x))).flatten(0, 1)


class Mixture(nn.Module):
    """A mixture of experts: each token goes to two of four, and an expert computes the tokens that it gets."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.router = nn.Linear(WIDTH, EXPERTS)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH)) for _ in range(EXPERTS)
        )
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens).flatten(0, 1)
        weights, chosen = self.router(x).softmax(-1).topk(2)
        y = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            token, place = (chosen == number).nonzero(as_tuple=True)
            y = y.index_add(0, token, expert(x[token]) * weights[token, place].unsqueeze(-1))
        return self.head(x + y)


def tokens_of(classes: int) -> Callable[[int], tuple[Tensor, Tensor]]:
    def batch(length: int) -> tuple[Tensor, Tensor]:
        shape = (BATCH["gpt"], length)
        return torch.randint(VOCABULARY, shape), torch.randint(classes, shape)

    return batch


@dataclass(frozen=True)
class Work:
    """A model, and its batches by size."""

    model: Callable[[], nn.Module]
    batch: Callable[[int], tuple[Tensor, Tensor]]


WORKS = {
    "length": Work(MODELS["gpt"], tokens_of(VOCABULARY)),
    "batch": Work(MODELS["mlp"], lambda size: (torch.randn(size, 784), torch.randint(CLASSES, (size,)))),
    "image": Work(MODELS["resnet"], lambda size: (torch.randn(4, 3, size, size), torch.randint(CLASSES, (4,)))),
    "lstm": Work(Recurrent, tokens_of(CLASSES)),
    "mamba": Work(StateSpace, tokens_of(CLASSES)),
    "experts": Work(Mixture, tokens_of(CLASSES)),
}
