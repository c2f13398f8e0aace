"""Writes a small Llama with random weights, and a tokenizer of bytes, to a folder.

python examples/serving/small_model.py FOLDER
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

CHAT = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant: "


def write(folder: Path, seed: int = 0) -> None:
    """Writes the model. Its vocabulary is the 256 bytes and two marks."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    write_tokenizer(folder)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=258,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=1024,
        bos_token_id=256,
        eos_token_id=257,
    )
    model = LlamaForCausalLM(config)
    for parameter in model.parameters():
        if parameter.dim() > 1:  # larger than usual, so that tokens differ in likelihood
            torch.nn.init.normal_(parameter, std=0.2)
    model.save_pretrained(folder)


def write_tokenizer(folder: Path, words: int = 0, merges: Sequence[tuple[str, str]] = ()) -> None:
    """A token for each byte, then marks for start and end. Then `words` more: first those of `merges`, each
    of two tokens before it, then words that are only decoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {letter: i for i, letter in enumerate(letters)} | {"<s>": 256, "</s>": 257}
    vocabulary |= {first + second: 258 + i for i, (first, second) in enumerate(merges)}
    vocabulary |= {f"Ġw{i}": i for i in range(258 + len(merges), 258 + words)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="</s>")
    fast.chat_template = CHAT
    fast.save_pretrained(folder)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
