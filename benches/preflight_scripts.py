"""Training scripts as users write them, for benches/preflight_figures.py to give to preflight.

    python -m torchtpu preflight benches/preflight_scripts.py gpt2 --batch 4

gpt2, llama, llama-8b and llama-70b need transformers, resnet50 needs torchvision. The last two Llamas are sharded by
FSDP2: preflight takes a topology such as `--chip v5e:4x4` for them.
"""

from __future__ import annotations

import argparse
import importlib
import os
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

LENGTH = 1024
VOCABULARY = 50257
# Sizes of the sharded scripts, from which the analytic figures of their bytes come.
LLAMA_LAYERS, LLAMA_WIDTH, LLAMA_INNER, LLAMA_VOCABULARY = 4, 2048, 5632, 32000
TP_BLOCKS, TP_WIDTH, TP_ROWS = 4, 1024, 512


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """The end of each training step."""
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())


def train_tokens(model: nn.Module, batch: int, length: int, vocabulary: int) -> None:
    """Trains a model of transformers on invented tokens."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    for _ in range(10):
        tokens = torch.randint(vocabulary, (batch, length)).to("tpu")
        step(optimizer, model(input_ids=tokens, labels=tokens, use_cache=False).loss)


def llama(layers: int, width: int, inner: int, heads: int, groups: int, vocabulary: int) -> nn.Module:
    """A Llama of transformers."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=width,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=groups,
        vocab_size=vocabulary,
        max_position_embeddings=8192,
    )
    model: nn.Module = LlamaForCausalLM(config)
    return model


def gpt2(options: argparse.Namespace) -> None:
    """GPT-2, 124 M parameters, in float32."""
    from transformers import GPT2Config, GPT2LMHeadModel

    train_tokens(GPT2LMHeadModel(GPT2Config()).to("tpu"), options.batch, LENGTH, VOCABULARY)


def resnet50(options: argparse.Namespace) -> None:
    """torchvision's ResNet-50, in float32."""
    models: Any = importlib.import_module("torchvision.models")
    model = models.resnet50().to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        images, classes = torch.randn(options.batch, 3, 224, 224), torch.randint(1000, (options.batch,))
        step(optimizer, F.cross_entropy(model(images.to("tpu")), classes.to("tpu")))


def small_llama(options: argparse.Namespace) -> None:
    """A Llama of 8 layers on one chip, in bfloat16."""
    model = llama(8, LENGTH, 2816, 8, 8, 32000).to("tpu", torch.bfloat16)
    train_tokens(model, options.batch, LENGTH, 32000)


def sharded(model: Any, checkpointing: bool, batch: int, length: int, vocabulary: int) -> None:
    """Trains a Llama under FSDP2, as a rank that torchrun has started."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    dist.init_process_group()
    torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))  # type: ignore[attr-defined]
    if checkpointing:
        model.gradient_checkpointing_enable()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model.model.layers:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    model.to("tpu")
    model.train()
    train_tokens(model, batch, length, vocabulary)


def llama_8b(options: argparse.Namespace) -> None:
    """Llama 3.1 8B's shape under FSDP2."""
    sharded(llama(32, 4096, 14336, 32, 8, 128256), True, 1, 2048, 128256)


def llama_70b(options: argparse.Namespace) -> None:
    """Llama 3 70B's shape under FSDP2."""
    sharded(llama(80, 8192, 28672, 64, 8, 128256), True, 1, 2048, 128256)


def fsdp(options: argparse.Namespace) -> None:
    """A Llama of four layers under FSDP2, whose bytes are counted."""
    heads = LLAMA_WIDTH // 128
    model = llama(LLAMA_LAYERS, LLAMA_WIDTH, LLAMA_INNER, heads, heads, LLAMA_VOCABULARY)
    sharded(model, False, 1, LENGTH, LLAMA_VOCABULARY)


def tensor_parallel(options: argparse.Namespace) -> None:
    """Perceptrons whose first layers are cut by columns, and the second ones by rows."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    dist.init_process_group()
    torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))  # type: ignore[attr-defined]
    mesh = init_device_mesh("tpu", (dist.get_world_size(),), mesh_dim_names=("tp",))
    blocks = [
        nn.Sequential(nn.Linear(TP_WIDTH, 4 * TP_WIDTH), nn.GELU(), nn.Linear(4 * TP_WIDTH, TP_WIDTH))
        for _ in range(TP_BLOCKS)
    ]
    model = nn.Sequential(*blocks).to("tpu")
    for block in model:
        parallelize_module(block, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        x = torch.randn(TP_ROWS, TP_WIDTH, device="tpu", requires_grad=True)
        step(optimizer, model(x).square().mean())


class Layer(nn.Module):
    """A layer of a GPT, 1024 wide."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(1024), nn.LayerNorm(1024)
        self.mix, self.out = nn.Linear(1024, 3072), nn.Linear(1024, 1024)
        self.inner = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024))

    def forward(self, x: Tensor) -> Tensor:
        """`x` and the result are (batch, places, 1024)."""
        query, key, value = self.mix(self.before(x)).unflatten(-1, (3, self.heads, -1)).transpose(1, 3).unbind(2)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.inner(self.after(x))


def gpt(options: argparse.Namespace) -> None:
    """A GPT of four layers in bfloat16, with heads of 64 or of 128."""
    layers = [Layer(options.heads) for _ in range(4)]
    model = nn.Sequential(nn.Embedding(VOCABULARY, 1024), *layers, nn.Linear(1024, VOCABULARY, bias=False))
    model.to("tpu", torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(10):
        tokens = torch.randint(VOCABULARY, (options.batch, LENGTH)).to("tpu")
        step(optimizer, F.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten()))


def habits(options: argparse.Namespace) -> None:
    """Two epochs with what scripts do around a step. It runs to its end."""
    model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10)).to("tpu")
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=1)
    scaler = torch.amp.GradScaler("tpu")
    best = float("inf")
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(2):
            x, y = torch.randn(32, 64).to("tpu"), torch.randint(10, (32,)).to("tpu")
            with torch.autocast("tpu", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0, error_if_nonfinite=True)
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            schedule.step(loss.detach())
            print(loss)
            if torch.isnan(loss):
                break
            best = min(best, loss.item())
            torch.save(model.state_dict(), os.path.join(folder, "last.pt"))
            if best < 0:
                break
        model.load_state_dict(torch.load(os.path.join(folder, "last.pt"), map_location="tpu"))
    print("the script has run to its end")


SCRIPTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "gpt2": gpt2,
    "resnet50": resnet50,
    "llama": small_llama,
    "llama-8b": llama_8b,
    "llama-70b": llama_70b,
    "fsdp": fsdp,
    "tensor-parallel": tensor_parallel,
    "gpt": gpt,
    "habits": habits,
}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("script", choices=list(SCRIPTS))
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--heads", type=int, default=16)
    options = parser.parse_args()
    SCRIPTS[options.script](options)
