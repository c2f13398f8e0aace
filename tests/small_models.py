"""Common models, small enough to train in a second, with data."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[tuple[Tensor, ...], Tensor]


class MLP(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 32), nn.Tanh(), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 5))

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class ResidualBlock(nn.Module):
    # SiLU instead of ReLU, and no max pooling: at a kink, rounding alone could make two trainings diverge.
    def __init__(self, channels_in: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels_in, channels, 3, stride=stride, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, groups=4, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)
        self.shortcut = nn.Conv2d(channels_in, channels, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.silu(self.first_norm(self.first(x)))
        return F.silu(self.second_norm(self.second(y)) + self.shortcut(x))


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(8)
        self.pool = nn.AvgPool2d(2)
        self.blocks = nn.Sequential(ResidualBlock(8, 8, 1), ResidualBlock(8, 16, 2))
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(F.silu(self.norm(self.stem(x))))
        return self.head(F.adaptive_avg_pool2d(self.blocks(x), 1).flatten(1))


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.bottom = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(16, 16, 2, stride=2)
        self.merge = nn.Conv2d(32, 16, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(4, channels) for channels in (8, 16, 16, 16))
        self.leave = nn.Conv2d(16 + 8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        shallow = F.silu(self.norms[0](self.enter(x)))
        middle = F.silu(self.norms[1](self.down(shallow)))
        deep = F.silu(self.norms[2](self.bottom(middle)))
        merged = F.silu(self.norms[3](self.merge(torch.cat([self.up(deep), middle], dim=1))))
        wide = F.interpolate(merged, scale_factor=2, mode="bilinear", align_corners=False)
        hint = F.interpolate(F.avg_pool2d(shallow, 2), size=x.shape[-2:], mode="nearest")
        return self.leave(torch.cat([wide, hint], dim=1))


class Attention(nn.Module):
    """Causal self-attention, written out or through `scaled_dot_product_attention`."""

    def __init__(self, width: int, heads: int, written_out: bool) -> None:
        super().__init__()
        self.heads, self.written_out = heads, written_out
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for each in self.qkv(x).chunk(3, dim=-1)
        )
        if self.written_out:
            scores = q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5
            future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
            y = scores.masked_fill(future, float("-inf")).softmax(dim=-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.project(y.transpose(1, 2).reshape(batch, length, width))


class GPT(nn.Module):
    def __init__(self, written_out: bool, vocabulary: int = 40, width: int = 32, context: int = 12) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.tokens.weight, std=0.1)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(
            nn.ModuleDict(
                {
                    "attention_norm": nn.LayerNorm(width),
                    "attention": Attention(width, 4, written_out),
                    "mlp_norm": nn.LayerNorm(width),
                    "mlp": nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)),
                }
            )
            for _ in range(2)
        )
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = x + block["attention"](block["attention_norm"](x))
            x = x + block["mlp"](block["mlp_norm"](x))
        return self.head(self.norm(x)).flatten(0, 1)


class ViT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 32, 4, stride=4)
        self.class_token = nn.Parameter(torch.randn(1, 1, 32) * 0.02)
        self.positions = nn.Parameter(torch.randn(1, 17, 32) * 0.02)
        layer = nn.TransformerEncoderLayer(
            32, 4, dim_feedforward=64, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(32, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.class_token.expand(x.shape[0], -1, -1), x], dim=1)
        return self.head(self.encoder(x + self.positions)[:, 0])


class Recurrent(nn.Module):
    def __init__(self, cell: type[nn.RNNBase]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 12)
        self.layers = cell(12, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, 20)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.layers(self.embedding(tokens))[0]).flatten(0, 1)


class DLRM(nn.Module):
    """A recommender: embedding bags and dense features, and their pairwise products."""

    def __init__(self) -> None:
        super().__init__()
        self.bags = nn.ModuleList(nn.EmbeddingBag(30, 8, mode=mode) for mode in ("sum", "mean"))
        self.dense = nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.Linear(16, 8), nn.SiLU())
        self.top = nn.Sequential(nn.Linear(8 + 3, 16), nn.ELU(), nn.Linear(16, 1))

    def forward(self, dense: Tensor, indices: Tensor, offsets: Tensor) -> Tensor:
        features = [self.dense(dense), *(bag(indices, offsets) for bag in self.bags)]
        stacked = torch.stack(features, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        row, column = torch.tril_indices(3, 3, offset=-1, device=dense.device)
        return self.top(torch.cat([features[0], products[:, row, column]], dim=1)).squeeze(1)


def _images(size: int = 8) -> Batch:
    x = torch.randn(size, 3, 16, 16)
    return (x,), x.mean(dim=(1, 2, 3)).mul(100).long() % 5


def _masks(size: int = 4) -> Batch:
    x = torch.randn(size, 3, 16, 16)
    return (x,), (x.mean(dim=1) > 0).long()


def _vectors(size: int = 16) -> Batch:
    return (torch.randn(size, 12),), torch.randint(5, (size,))


def _text(vocabulary: int, batch: int, length: int) -> Batch:
    tokens = torch.randint(vocabulary, (batch, length + 1))
    return (tokens[:, :-1].contiguous(),), tokens[:, 1:].flatten()


def _clicks(size: int = 16) -> Batch:
    lengths = torch.randint(1, 4, (size,))
    offsets = F.pad(lengths.cumsum(0), (1, 0))[:-1]
    # Every batch of a size has the same number of indices; the last bag takes the rest.
    given = torch.randn(size, 6), torch.randint(30, (3 * size,)), offsets
    return given, torch.randint(2, (size,)).float()


@dataclasses.dataclass(frozen=True)
class Task:
    model: Callable[[], nn.Module]
    batch: Callable[..., Batch]
    """A batch with the requested number of samples."""
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy


TASKS = {
    "mlp": Task(MLP, _vectors),
    "resnet": Task(ResNet, _images),
    "unet": Task(UNet, _masks),
    "gpt": Task(lambda: GPT(written_out=True), lambda size=4: _text(40, size, 12)),
    "gpt_sdpa": Task(lambda: GPT(written_out=False), lambda size=4: _text(40, size, 12)),
    "vit": Task(ViT, _images),
    "lstm": Task(lambda: Recurrent(nn.LSTM), lambda size=4: _text(20, size, 5)),
    "gru": Task(lambda: Recurrent(nn.GRU), lambda size=4: _text(20, size, 5)),
    "dlrm": Task(DLRM, _clicks, F.binary_cross_entropy_with_logits),
}
