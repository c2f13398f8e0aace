"""Published speeds of training on TPUs beside what preflight says of them: python benches/preflight_published.py

Each row is a decoder that MaxText's authors have measured, written in plain PyTorch with FSDP2 and activation
checkpointing, and given to preflight for the same chips. MaxText has flags of its own and other choices of what is
computed again, so the programs are not the same ones. Needs libtpu and jax, no TPU, and some minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812
from torch.utils.checkpoint import checkpoint

_V5E = "https://github.com/AI-Hypercomputer/maxtext/blob/main/MaxText/configs/v5e/README.md"
_TIERS = "https://github.com/AI-Hypercomputer/maxtext/blob/main/docs/reference/models/tiering.md"
HEAD = 128


class Row(NamedTuple):
    """A measured configuration. `heads` are those of queries, `groups` those of keys and values."""

    chips: str
    layers: int
    width: int
    heads: int
    groups: int
    inner: int
    vocabulary: int
    length: int
    batch: int
    published: float
    """TFLOP/s of a chip if `unit` is "TFLOP/s", else tokens/s of a chip."""
    unit: str
    source: str

    @property
    def tokens_per_second(self) -> float:
        """Of a chip, as measured. MaxText counts six operations for each weight and token, and all scores."""
        if self.unit == "tokens/s":
            return self.published
        attention = self.width * HEAD * (2 * self.heads + 2 * self.groups)
        weights = self.layers * (attention + 3 * self.width * self.inner) + self.width * self.vocabulary
        scores = 12 * self.layers * self.length * self.heads * HEAD
        return self.published * 1e12 / (6 * weights + scores)


# Sizes of 16B to 64B are those of MaxText's `global_parameter_scale`.
ROWS = {
    "16B": Row("v5e:16x16", 32, 4096, 64, 64, 28672, 32000, 2048, 6, 120, "TFLOP/s", _V5E),
    "32B": Row("v5e:16x16", 32, 8192, 64, 64, 28672, 32000, 2048, 4, 132, "TFLOP/s", _V5E),
    "64B": Row("v5e:16x16", 64, 8192, 64, 64, 28672, 32000, 2048, 2, 118, "TFLOP/s", _V5E),
    "Llama 2 70B, v6e": Row("v6e:16x16", 80, 8192, 64, 8, 28672, 32000, 4096, 4, 900, "tokens/s", _TIERS),
    "Llama 3.1 8B, v6e": Row("v6e:16x16", 32, 4096, 32, 8, 14336, 128256, 8192, 4, 7207, "tokens/s", _TIERS),
    "Llama 3.1 70B, v6e": Row("v6e:16x16", 80, 8192, 64, 8, 28672, 128256, 8192, 4, 960, "tokens/s", _TIERS),
    "Llama 2 70B, v5p": Row("v5p:8x8x8", 80, 8192, 64, 8, 28672, 32000, 4096, 4, 692, "tokens/s", _TIERS),
}


class Norm(nn.RMSNorm):
    """RMS norm that keeps the dtype."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, 1e-5)


class Block(nn.Module):
    """A layer: attention with rotated positions, and a gated perceptron."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row
        sizes = [row.heads * HEAD, row.groups * HEAD, row.groups * HEAD]
        self.query, self.key, self.value = (nn.Linear(row.width, size, bias=False) for size in sizes)
        self.out = nn.Linear(sizes[0], row.width, bias=False)
        self.gate, self.up = (nn.Linear(row.width, row.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(row.inner, row.width, bias=False)
        self.before, self.after = Norm(row.width), Norm(row.width)

    def forward(self, x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        y = self.before(x)
        query, key, value = (
            each(y).unflatten(-1, (-1, HEAD)).transpose(1, 2) for each in (self.query, self.key, self.value)
        )
        query, key = (rotated(each, cosine, sine) for each in (query, key))
        mixed = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=self.row.groups < self.row.heads
        )
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        y = self.after(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


def rotated(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Heads with their positions."""
    left, right = x.chunk(2, -1)
    return x * cosine + torch.cat([-right, left], -1) * sine


class Decoder(nn.Module):
    """A decoder of a row's sizes, whose layers are computed again in the backward pass."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        self.row = row
        self.embedding = nn.Embedding(row.vocabulary, row.width)
        self.layers = nn.ModuleList(Block(row) for _ in range(row.layers))
        self.norm, self.head = Norm(row.width), nn.Linear(row.width, row.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(self.row.length, device=tokens.device)[:, None]
        angles = places * 10000.0 ** (torch.arange(HEAD, device=tokens.device) % (HEAD // 2) * (-2.0 / HEAD))
        x = self.embedding(tokens)
        cosine, sine = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        for layer in self.layers:
            x = checkpoint(layer, x, cosine, sine, use_reentrant=False)
        return self.head(self.norm(x))


def train(row: Row) -> None:
    """Steps of a rank."""
    import torch.distributed as dist
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group()
    torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))  # type: ignore[attr-defined]
    model = Decoder(row)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to("tpu")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    while True:
        tokens = torch.randint(row.vocabulary, (row.batch, row.length)).to("tpu")
        loss = F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(loss.item())


def judged(name: str, deep: bool, time_limit: float) -> dict[str, object]:
    """Preflight's report of a row."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.json"
        command = [sys.executable, "-m", "torchtpu", "preflight", "--no-suggestions", "--chip", ROWS[name].chips]
        command += ["--time-limit", str(time_limit), "--json", str(out), *(["--deep"] if deep else [])]
        finished = subprocess.run([*command, __file__, "--train", name], capture_output=True, text=True)
        if not out.is_file():
            raise SystemExit(f"{name}: {finished.stderr.strip().splitlines()[-1:]}")
        found: dict[str, object] = json.loads(out.read_text())
    return found


def main() -> int:
    """Prints a row for each configuration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", default=";".join(ROWS), help="names, separated by semicolons")
    parser.add_argument("--deep", action="store_true", help="with the compiler's cycles")
    parser.add_argument("--time-limit", type=float, default=1800.0, help="seconds for the script and each compile")
    parser.add_argument("--train", choices=list(ROWS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        train(ROWS[options.train])
        return 0
    print("| configuration | chips | measured tokens/s | preflight | measured / lowest | measured / highest | memory |")
    print("|---|---|---|---|---|---|---|")
    for name in options.rows.split(";"):
        row, found = ROWS[name], judged(name, options.deep, options.time_limit)
        speed = found["throughput"]["per_second"]  # type: ignore[index]
        if found["failure"] or found["problems"] or not speed:
            problem = found["failure"] or found["problems"]
            print(f"| {name} | {row.chips} | {row.tokens_per_second:,.0f} | {problem} | | | |", flush=True)
            continue
        low, high = speed
        measured = row.tokens_per_second
        total, limit = found["bytes"]["total"] / 2**30, found["limit_bytes"] / 2**30  # type: ignore[index,operator]
        shown = (
            f"{low:,.0f} to {high:,.0f} | {measured / low:.2f} | {measured / high:.2f} | {total:.1f} of {limit:.1f} GiB"
        )
        print(f"| {name} | {row.chips} | {measured:,.0f} | {shown} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
