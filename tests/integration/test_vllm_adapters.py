"""vLLM on the device with LoRA, beside transformers with the adapters merged into its weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.helpers import programs_made
from tests.integration.engines import (
    engine,
    expected,
    generated,
    model_of,
    prompts_of,
    shut_down,
    tighter_programs,
    vllm,
)

__all__ = ["model_of", "vllm"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PROMPTS = prompts_of([1, 70, 20, 9, 33, 5, 17, 40])
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def write_adapter(folder: Path, base: Path, target: Path, rank: int, modules: tuple[str, ...], seed: int) -> None:
    """Writes an adapter as PEFT does, and a model with the adapter merged into its weights."""
    import transformers
    from safetensors.torch import save_file

    model = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    drawn = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    scale = 2 * rank / rank
    for name, module in model.named_modules():
        if not name.endswith(modules):
            continue
        outputs, inputs = module.weight.shape
        if isinstance(module, torch.nn.Embedding):
            outputs, inputs = inputs, outputs
        a = 0.2 * torch.randn(rank, inputs, generator=drawn)
        b = 0.2 * torch.randn(outputs, rank, generator=drawn)
        names = ("lora_embedding_A", "lora_embedding_B") if isinstance(module, torch.nn.Embedding) else None
        for own, each in zip(names or ("lora_A.weight", "lora_B.weight"), (a, b), strict=True):
            tensors[f"base_model.model.{name}.{own}"] = each
        added = scale * (b @ a)
        module.weight.data += added.t() if names else added
    model.save_pretrained(target)
    folder.mkdir()
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "target_modules": list(modules), "bias": "none"}
    (folder / "adapter_config.json").write_text(json.dumps(config | {"task_type": "CAUSAL_LM"}))


@pytest.fixture(scope="module")
def adapters(model_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Path]]:
    """Folders of adapters with other ranks and layers, and of the merged models."""
    own = tmp_path_factory.mktemp("adapters")
    kinds = [(8, LINEAR), (4, ("q_proj", "v_proj")), (8, (*LINEAR, "embed_tokens", "lm_head")), (2, ("down_proj",))]
    made = []
    for number, (rank, modules) in enumerate(kinds):
        made.append((own / f"adapter{number}", own / f"merged{number}"))
        write_adapter(made[-1][0], model_of("Llama"), made[-1][1], rank, modules, number)
    return made


def request_of(folder: Path, number: int) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(folder.name, number, str(folder))


def tokens_of(llm: Any, vllm: Any, prompts: list[list[int]], count: int, adapters: Any) -> list[list[int]]:
    """Greedy tokens of requests with adapters: one for all of them, or a list."""
    settings = vllm.SamplingParams(temperature=0, max_tokens=count, ignore_eos=True, detokenize=False)
    return [list(each.outputs[0].token_ids) for each in generated(llm, prompts, settings, adapters)]


def with_adapters(vllm: Any, folder: Path, **options: Any) -> Any:
    return engine(vllm, folder, enable_lora=True, max_loras=2, max_lora_rank=8, max_cpu_loras=3, **options)


def test_tokens_are_those_of_merged_weights(
    vllm: Any, model_of: Callable[[str], Path], adapters: list[tuple[Path, Path]]
) -> None:
    """More adapters than places, mixed with requests that have none. Nothing is compiled for any of them."""
    folders = [merged for _, merged in adapters] + [model_of("Llama")]
    requests = [request_of(own, number) for number, (own, _) in enumerate(adapters, 1)] + [None]
    by_model = [expected(folder, PROMPTS, 8) for folder in folders]
    assert len({str(each) for each in by_model}) == len(folders)
    llm = with_adapters(vllm, model_of("Llama"))
    try:
        before = programs_made()
        for shift in range(3):
            chosen = [(row + shift) % len(folders) for row in range(len(PROMPTS))]
            found = tokens_of(llm, vllm, PROMPTS, 8, [requests[i] for i in chosen])
            assert found == [by_model[model][row] for row, model in enumerate(chosen)]
        tighter = tighter_programs(llm)
        assert programs_made() == before + tighter
    finally:
        shut_down(llm)


def test_a_step_with_adapters_is_one_launch(
    vllm: Any, model_of: Callable[[str], Path], adapters: list[tuple[Path, Path]]
) -> None:
    request = request_of(adapters[0][0], 1)
    llm = with_adapters(vllm, model_of("Llama"))
    try:
        tokens_of(llm, vllm, [[5, 6]], 1, request)
        with torch.tpu.explain() as explanation:
            tokens_of(llm, vllm, [[7, 8]], 12, request)
        assert len(explanation.runs) == 12
    finally:
        shut_down(llm)


def test_an_adapter_is_replaced_and_removed(
    vllm: Any, model_of: Callable[[str], Path], adapters: list[tuple[Path, Path]]
) -> None:
    """A number may stand for another adapter after it was removed."""
    llm = with_adapters(vllm, model_of("Llama"), enable_prefix_caching=False)
    try:
        core = llm.llm_engine
        for own, merged in adapters[:2]:
            request = request_of(own, 1)
            assert core.add_lora(request)
            assert 1 in core.list_loras()
            assert tokens_of(llm, vllm, PROMPTS, 8, request) == expected(merged, PROMPTS, 8)
            assert core.remove_lora(1)
            assert 1 not in core.list_loras()
    finally:
        shut_down(llm)


def test_weights_made_int8_have_adapters(
    vllm: Any, model_of: Callable[[str], Path], adapters: list[tuple[Path, Path]]
) -> None:
    options = {"quantization": "online", "quantization_config": {"linear": "int8_per_channel_static"}}
    own, merged = adapters[0]
    llm = with_adapters(vllm, model_of("Llama"), dtype="bfloat16", **options)
    try:
        without, found = (tokens_of(llm, vllm, PROMPTS, 1, each) for each in (None, request_of(own, 1)))
    finally:
        shut_down(llm)
    exact = expected(merged, PROMPTS, 1)
    equal = [sum(a == b for a, b in zip(each, exact, strict=True)) for each in (without, found)]
    assert equal[0] < len(PROMPTS) // 2 < equal[1]


def test_what_cannot_have_adapters_is_refused(vllm: Any, model_of: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(Exception, match="enable_lora: Qwen3MoeForCausalLM is not supported"):
        with_adapters(vllm, model_of("a mixture of experts"))
    write_adapter(tmp_path / "wide", model_of("Llama"), tmp_path / "merged", 16, ("q_proj",), 0)
    llm = with_adapters(vllm, model_of("Llama"))
    try:
        with pytest.raises(Exception, match="rank"):
            llm.llm_engine.add_lora(request_of(tmp_path / "wide", 9))
        assert tokens_of(llm, vllm, PROMPTS[:1], 2, None)
    finally:
        shut_down(llm)
