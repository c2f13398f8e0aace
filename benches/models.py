"""The models of the training-step benchmark, in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

VOCABULARY, WIDTH, HEADS, HIDDEN, LAYERS, POSITIONS = 512, 128, 4, 512, 4, 256
BATCH = {"mlp": 64, "gpt": 4, "resnet": 16}
LENGTH = 128


class Attention(nn.Module):
    """Causal self-attention, written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.projection = nn.Linear(WIDTH, WIDTH)
        self.register_buffer("mask", torch.ones(POSITIONS, POSITIONS, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        query, key, value = (
            each.view(batch, length, HEADS, WIDTH // HEADS).transpose(1, 2)
            for each in self.query_key_value(x).split(WIDTH, dim=2)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(WIDTH // HEADS)
        scores = scores.masked_fill(self.mask[:length, :length], float("-inf"))  # type: ignore[index]
        attended = scores.softmax(-1) @ value
        return self.projection(attended.transpose(1, 2).reshape(batch, length, WIDTH))


class Block(nn.Module):
    """Pre-norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm_attention = nn.LayerNorm(WIDTH)
        self.attention = Attention()
        self.norm_mlp = nn.LayerNorm(WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Gpt(nn.Module):
    """Learned positions, untied head."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(POSITIONS, WIDTH) * 0.02)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x))).flatten(0, 1)


class Residual(nn.Module):
    """Two 3x3 convolutions; a 1x1 convolution as shortcut where the shape changes."""

    def __init__(self, channels_in: int, channels_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(channels_out),
        )
        same = channels_in == channels_out and stride == 1
        self.shortcut = nn.Identity() if same else nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def make_resnet() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        Residual(16, 16, 1),
        Residual(16, 32, 2),
        Residual(32, 64, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def make_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))


MODELS: dict[str, Callable[[], nn.Module]] = {"mlp": make_mlp, "gpt": Gpt, "resnet": make_resnet}


def make_batch(work: str) -> tuple[Tensor, Tensor]:
    """A fresh batch on the host."""
    batch = BATCH[work]
    if work == "gpt":
        tokens = torch.randint(VOCABULARY, (batch, LENGTH + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    shape = (batch, 784) if work == "mlp" else (batch, 3, 32, 32)
    return torch.randn(shape), torch.randint(10, (batch,))
