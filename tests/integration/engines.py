"""vLLM's engine with small random models, for tests. It runs in the process of the test."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

SMALL = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama": ("LlamaForCausalLM", {}),
    "Qwen3": ("Qwen3ForCausalLM", {"head_dim": 16}),
    "Gemma3": (
        "Gemma3ForCausalLM",
        {"head_dim": 16, "sliding_window": 32, "num_hidden_layers": 6, "query_pre_attn_scalar": 16},
    ),
    "Phi3": ("Phi3ForCausalLM", {}),
    "a mixture of experts": (
        "Qwen3MoeForCausalLM",
        {"head_dim": 16, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64},
    ),
}


@pytest.fixture(scope="module", autouse=True)
def vllm() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "TORCHTPU_VLLM": "1",
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }.items():
            patch.setenv(name, value)
        yield pytest.importorskip("vllm", reason="vLLM is not installed: make test-serving")


@pytest.fixture(scope="module")
def model_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A folder with a random model, by its name."""
    made: dict[str, Path] = {}

    def make(name: str) -> Path:
        if name not in made:
            import transformers

            cls = getattr(transformers, MODELS[name][0])
            torch.manual_seed(0)
            model = cls(cls.config_class(**SMALL | MODELS[name][1]))
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    torch.nn.init.normal_(parameter, std=0.15)
            made[name] = tmp_path_factory.mktemp(name)
            model.save_pretrained(made[name])
        return made[name]

    return make


def engine(vllm: Any, folder: Path, **options: Any) -> Any:
    given = {"dtype": "float32", "max_num_seqs": 8, "max_num_batched_tokens": 64, "max_model_len": 256, "seed": 0}
    return vllm.LLM(model=str(folder), skip_tokenizer_init=True, **given | options)


def tighter_programs(llm: Any) -> int:
    """Waits for the tighter programs that were begun. Returns their number."""

    def count(worker: Any) -> int:
        begun = [each for each in worker.runner._tighter if each.is_begun]
        deadline = time.monotonic() + 120
        while not all(each.is_ready() for each in begun):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return len(begun)

    return int(llm.collective_rpc(count)[0])


def shut_down(llm: Any) -> None:
    """Ends an engine. Tighter programs that it has begun are made first, because tests count the programs of the
    process."""
    if (
        hasattr(llm.llm_engine.engine_core, "engine_core")
        and llm.llm_engine.vllm_config.parallel_config.world_size == 1
    ):
        tighter_programs(llm)
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()


def prompts_of(lengths: list[int]) -> list[list[int]]:
    drawn = random.Random(0)
    return [[drawn.randrange(3, SMALL["vocab_size"]) for _ in range(length)] for length in lengths]


def generated(llm: Any, prompts: list[list[int]], settings: Any, adapters: Any = None) -> list[Any]:
    given = [{"prompt_token_ids": each} for each in prompts]
    return llm.generate(given, settings, lora_request=adapters, use_tqdm=False)


def reference(folder: Path) -> Any:
    """The model as transformers computes it."""
    import transformers

    return transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def expected(folder: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    model = reference(folder)
    found = []
    for prompt in prompts:
        with torch.no_grad():
            result = model.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False, eos_token_id=None)
        found.append(result[0, len(prompt) :].tolist())
    return found
