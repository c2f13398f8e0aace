"""Small random models under the names that vLLM's tests ask for, as Hugging Face's cache holds downloads."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from examples.serving.small_model import write_tokenizer

START, END = 256, 257
# So many that the texts of random models are words, and that the tests' tokens exist.
WORDS = 12288 - 258
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
MARKS = {"vocab_size": 258 + WORDS, "bos_token_id": START, "eos_token_id": END, "pad_token_id": END}
_WIDTH = {"num_key_value_heads": 2, "head_dim": 16}
LLAMA = ("LlamaForCausalLM", {"num_key_value_heads": 2})
QWEN3 = ("Qwen3ForCausalLM", _WIDTH)
GPT2 = ("GPT2LMHeadModel", {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 8192})
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "facebook/opt-125m": ("OPTForCausalLM", {"ffn_dim": 128, "word_embed_proj_dim": 64}),
    "meta-llama/Llama-3.2-1B-Instruct": LLAMA,
    "meta-llama/Llama-3.2-1B": LLAMA,
    "hmellor/tiny-random-LlamaForCausalLM": LLAMA,
    "TinyLlama/TinyLlama-1.1B-Chat-v1.0": LLAMA,
    "hmellor/tiny-random-Gemma2ForCausalLM": (
        "Gemma2ForCausalLM",
        {**_WIDTH, "query_pre_attn_scalar": 16, "sliding_window": 4096},
    ),
    "google/gemma-3-1b-it": (
        "Gemma3ForCausalLM",
        {**_WIDTH, "query_pre_attn_scalar": 16, "sliding_window": 512},
    ),
    "JackFram/llama-160m": ("LlamaForCausalLM", {"num_key_value_heads": 2, "max_position_embeddings": 2048}),
    "Qwen/Qwen3-0.6B": QWEN3,
    "Qwen/Qwen3-1.7B": QWEN3,
    "Qwen/Qwen2.5-1.5B-Instruct": ("Qwen2ForCausalLM", {"num_key_value_heads": 2}),
    "openai-community/gpt2": GPT2,
    "distilbert/distilgpt2": GPT2,
}
REVISION = "0" * 40


def write(home: Path, texts: Sequence[str] = ()) -> None:
    """Writes the models to a folder that HF_HOME then names. Their tokenizer joins what is frequent in the texts."""
    merges = _merges(texts)
    for name, (kind, settings) in MODELS.items():
        base = home / "hub" / f"models--{name.replace('/', '--')}"
        snapshot = base / "snapshots" / REVISION
        snapshot.mkdir(parents=True, exist_ok=True)
        (base / "refs").mkdir(exist_ok=True)
        (base / "refs" / "main").write_text(REVISION)
        write_tokenizer(snapshot, WORDS, merges)
        _model(kind, settings).save_pretrained(snapshot)


def _merges(texts: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs of tokens that a tokenizer for these texts joins, at most 2,000."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=256 + 2000, initial_alphabet=alphabet, show_progress=False)  # type: ignore[call-arg]
    tokenizer.train_from_iterator(texts, trainer)
    return [(first, second) for first, second in json.loads(tokenizer.to_str())["model"]["merges"]]


def _model(kind: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    made = getattr(transformers, kind)
    sizes: dict[str, Any] = {} if kind.startswith("GPT2") else {**SIZES, "max_position_embeddings": 8192}
    model = made(made.config_class(**{**sizes, **MARKS, **settings}))
    for parameter in model.parameters():
        if parameter.dim() > 1:  # larger than usual, so that tokens differ in likelihood
            torch.nn.init.normal_(parameter, std=0.2)
    return model.to(torch.float16 if kind.startswith("OPT") else torch.bfloat16)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
