"""The models of the training-step benchmark, in PyTorch."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from shapes import GPTS, Shape
from torch import Tensor, nn

VOCABULARY, WIDTH = GPTS["gpt"].vocabulary, GPTS["gpt"].width
BATCH = {"mlp": 64, "gpt": GPTS["gpt"].batch, "resnet": 16}


class Attention(nn.Module):
    """Causal self-attention, written by hand."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.query_key_value = nn.Linear(shape.width, 3 * shape.width)
        self.projection = nn.Linear(shape.width, shape.width)
        self.register_buffer("mask", torch.ones(shape.positions, shape.positions, dtype=torch.bool).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            each.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for each in self.query_key_value(x).split(width, dim=2)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.mask[:length, :length], float("-inf"))  # type: ignore[index]
        attended = scores.softmax(-1) @ value
        return self.projection(attended.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """Pre-norm."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        width = shape.width
        self.norm_attention = nn.LayerNorm(width)
        self.attention = Attention(shape)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm_attention(x))
        return x + self.mlp(self.norm_mlp(x))


class Gpt(nn.Module):
    """Learned positions, untied head."""

    def __init__(self, shape: Shape = GPTS["gpt"]) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Parameter(torch.randn(shape.positions, shape.width) * 0.02)
        self.blocks = nn.Sequential(*(Block(shape) for _ in range(shape.layers)))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.vocabulary)

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


MODELS: dict[str, Callable[[], nn.Module]] = {
    "mlp": make_mlp,
    "gpt": Gpt,
    "resnet": make_resnet,
    "gpt2": lambda: Gpt(GPTS["gpt2"]).to(torch.bfloat16),
}


def make_batch(work: str) -> tuple[Tensor, Tensor]:
    """A fresh batch on the host."""
    if work in GPTS:
        tokens = torch.randint(GPTS[work].vocabulary, (GPTS[work].batch, GPTS[work].length + 1))
        return tokens[:, :-1].contiguous(), tokens[:, 1:].flatten()
    batch = BATCH[work]
    shape = (batch, 784) if work == "mlp" else (batch, 3, 32, 32)
    return torch.randn(shape), torch.randint(10, (batch,))
