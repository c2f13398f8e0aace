"""Does continuous batching by transformers' `generate_batch` compile programs for each new mix of prompts?

    make test-serving     # installs transformers into build/serving
    PYTHONPATH=build/serving python benches/generate_batch.py

A small Llama answers mixes of 2 to 6 prompts of 3 to 60 tokens, 12 new tokens each, greedy, in float32. For each mix
it prints the programs that were compiled, and whether the tokens equal those of PyTorch's CPU backend. Then it prints
the lines of the last mix that compiled the most.
"""

from __future__ import annotations

import argparse
import collections
import copy
import random
from typing import Any

import torch
from transformers import ContinuousBatchingConfig, GenerationConfig, LlamaConfig, LlamaForCausalLM

TOKENS = 12
MODEL = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 512}


def answers(model: Any, prompts: list[list[int]]) -> list[list[int]]:
    """The new tokens of each prompt."""
    greedy = GenerationConfig(do_sample=False, max_new_tokens=TOKENS, eos_token_id=-1, pad_token_id=0)
    batching = ContinuousBatchingConfig(page_size=32, num_blocks=64, max_batch_tokens=128)
    results = model.generate_batch(prompts, greedy, batching)
    return [list(results[name].generated_tokens) for name in sorted(results, key=lambda name: int(name.split("_")[-1]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mixes", type=int, default=8)
    parser.add_argument("--mode", choices=("strict", "fused"), default="strict")
    options = parser.parse_args()
    device: Any = torch.tpu  # type: ignore[attr-defined]
    device.set_eager_mode(options.mode)
    torch.manual_seed(0)
    on_host = LlamaForCausalLM(LlamaConfig(**MODEL, **HEADS)).eval()
    on_device = copy.deepcopy(on_host).to("tpu")
    drawn = random.Random(0)
    for mix in range(options.mixes):
        prompts = [
            [drawn.randrange(3, 300) for _ in range(drawn.randrange(3, 61))] for _ in range(drawn.randrange(2, 7))
        ]
        before = device.cache_stats()["compiles"]
        with device.explain() as explanation:
            found = answers(on_device, prompts)
        made = device.cache_stats()["compiles"] - before
        same = found == answers(on_host, prompts)
        print(
            f"mix {mix + 1}, {len(prompts)} prompts: {made} compiles; the tokens are{'' if same else ' not'} the CPU's"
        )
    lines = collections.Counter(
        f"{name} at {line}"
        for each in explanation.compiles
        for name, line in explanation.programs[each["program"]]["operators"][-1:]
    )
    for line, number in lines.most_common(8):
        print(f"  {number:4} {line}")


if __name__ == "__main__":
    main()
