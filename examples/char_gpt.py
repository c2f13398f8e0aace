#!/usr/bin/env python3
"""Trains a small character-level GPT on the text of Python's documentation, and prints generated text.

The text is `pydoc_data.topics`, which is part of Python: the texts of `help()` for keywords and topics.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm


class Block(nn.Module):
    """A pre-norm transformer block."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm_attention = nn.LayerNorm(width)
        self.query_key_value = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.norm_mlp = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        split = self.query_key_value(self.norm_attention(x)).view(batch, length, 3, self.heads, width // self.heads)
        query, key, value = split.permute(2, 0, 3, 1, 4).unbind(0)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm_mlp(x))


class CharGPT(nn.Module):
    """Predicts the next character."""

    def __init__(self, vocabulary: int, context: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.context = context
        self.characters = nn.Embedding(vocabulary, width)
        nn.init.normal_(self.characters.weight, std=0.02)  # as small as the positions
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.characters(tokens) + self.positions[: tokens.shape[1]]
        return self.head(self.norm(self.blocks(x)))

    @torch.no_grad()
    def generate(self, prompt: Tensor, count: int, temperature: float) -> Tensor:
        """Continues a prompt. The window has a fixed length, so every character after it uses the same program."""
        window = F.pad(prompt, (0, self.context - len(prompt)))
        length = len(prompt)
        written = []
        for _ in range(count):
            logits = self(window.unsqueeze(0))[0]
            last = torch.tensor([length - 1], device=window.device)
            probabilities = F.softmax(logits.index_select(0, last)[0] / temperature, dim=-1)
            character = torch.multinomial(probabilities, 1)
            written.append(character)
            if length < self.context:
                window = torch.where(torch.arange(self.context, device=window.device) == last + 1, character, window)
                length += 1
            else:
                window = torch.cat([window[1:], character])
        return torch.cat(written)


def load_text() -> str:
    """Python's documentation of its keywords and topics."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sorted(topics))


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Train a character GPT on Python's own documentation and print what it writes.",
        epilog="Example: python examples/char_gpt.py --device tpu --mode strict --steps 200",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--device", default="tpu", help="where to train: tpu, cpu, ...")
    parser.add_argument("--mode", choices=["debug", "strict", "fused"], default="fused", help="on a tpu only")
    parser.add_argument("--steps", type=int, default=1000, help="training steps")
    parser.add_argument("--batch-size", type=int, default=16, help="sequences per step")
    parser.add_argument("--context", type=int, default=64, help="characters per sequence")
    parser.add_argument("--width", type=int, default=128, help="width of the model")
    parser.add_argument("--layers", type=int, default=4, help="transformer blocks")
    parser.add_argument("--heads", type=int, default=4, help="attention heads")
    parser.add_argument("--learning-rate", type=float, default=2e-3, help="at its highest, before it decays")
    parser.add_argument("--generate", type=int, default=400, help="characters to write at the end")
    parser.add_argument("--temperature", type=float, default=0.8, help="below 1: safer, above 1: wilder")
    parser.add_argument("--prompt", default="The ", help="what the text begins with")
    parser.add_argument("--seed", type=int, default=0, help="for weights, data and sampling")
    options = parser.parse_args()

    torch.manual_seed(options.seed)
    device = torch.device(options.device)
    if device.type == "tpu":
        torch.tpu.eager_mode = options.mode

    text = load_text()
    alphabet = sorted(set(text))
    number = {character: index for index, character in enumerate(alphabet)}
    if unknown := set(options.prompt) - set(alphabet):
        parser.error(f"--prompt has characters that the text lacks: {' '.join(sorted(unknown))}")
    if not 0 < len(options.prompt) <= options.context:
        parser.error("--prompt must have at least one character and fit into --context")
    data = torch.tensor([number[character] for character in text])
    print(f"{len(text):,} characters, {len(alphabet)} different ones")

    model = CharGPT(len(alphabet), options.context, options.width, options.layers, options.heads).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(options.steps, 1))
    window = torch.arange(options.context + 1)

    start = time.perf_counter()
    with tqdm(range(options.steps), unit="step", file=sys.stdout) as progress:
        for step in progress:
            begins = torch.randint(len(data) - options.context - 1, (options.batch_size, 1))
            batch = data[begins + window].to(device)
            optimizer.zero_grad(set_to_none=True)
            logits = model(batch[:, :-1])
            loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            if step % 10 == 0 or step == options.steps - 1:
                progress.set_postfix(loss=f"{loss.item():.3f}")
    print(f"{options.steps} steps in {time.perf_counter() - start:.1f} s")

    prompt = torch.tensor([number[character] for character in options.prompt], device=device)
    written = model.generate(prompt, options.generate, options.temperature).tolist()
    print(f"\n{options.prompt}{''.join(alphabet[index] for index in written)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
