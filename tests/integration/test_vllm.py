"""vLLM on the device, with small random models. `make test-serving` installs vLLM and runs this.

The engine runs in the process of the test, so that its counters can be read.
"""

from __future__ import annotations

import gc
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import programs_made

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

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


def shut_down(llm: Any) -> None:
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()


def prompts_of(lengths: list[int]) -> list[list[int]]:
    drawn = random.Random(0)
    return [[drawn.randrange(3, SMALL["vocab_size"]) for _ in range(length)] for length in lengths]


def generated(llm: Any, prompts: list[list[int]], settings: Any) -> list[Any]:
    return llm.generate([{"prompt_token_ids": each} for each in prompts], settings, use_tqdm=False)


def expected(folder: Path, prompts: list[list[int]], tokens: int) -> list[list[int]]:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    found = []
    for prompt in prompts:
        with torch.no_grad():
            result = model.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False, eos_token_id=None)
        found.append(result[0, len(prompt) :].tolist())
    return found


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_are_those_of_transformers(name: str, vllm: Any, model_of: Callable[[str], Path]) -> None:
    """Prompts are longer than a step (64 tokens), share prefixes, and do not all fit in the cache at once."""
    prompts = prompts_of([1, 2, 200, 3, 17, 64, 100, 65, 33, 128, 7, 150])
    prompts += [prompts[2][:120] + each for each in prompts_of([5, 40])]
    settings = vllm.SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, detokenize=False)
    llm = engine(vllm, model_of(name), num_gpu_blocks_override=30)
    try:
        found = [list(each.outputs[0].token_ids) for each in generated(llm, prompts, settings)]
        again = [list(each.outputs[0].token_ids) for each in generated(llm, prompts, settings)]
    finally:
        shut_down(llm)
    assert found == expected(model_of(name), prompts, 12)
    assert again == found


def test_mixes_and_settings_compile_nothing(vllm: Any, model_of: Callable[[str], Path]) -> None:
    drawn = random.Random(0)
    choices: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.7},
        {"top_k": 5},
        {"top_p": 0.8},
        {"min_p": 0.1},
        {"temperature": 0.0, "repetition_penalty": 1.2, "frequency_penalty": 0.5, "presence_penalty": 0.1},
        {"temperature": 0.0, "logit_bias": {5: 100.0}},
        {"logprobs": 3},
        {"seed": 7},
        {"allowed_token_ids": [4, 5, 40]},
        {"min_tokens": 1},
        {"n": 3},
    ]
    llm = engine(vllm, model_of("Llama"))
    try:
        before = programs_made()
        for _ in range(50):
            prompts = prompts_of([drawn.randrange(1, 200) for _ in range(drawn.randrange(1, 12))])
            settings = [
                vllm.SamplingParams(max_tokens=drawn.randrange(1, 9), detokenize=False, **drawn.choice(choices))
                for _ in prompts
            ]
            for result, asked in zip(generated(llm, prompts, settings), settings, strict=True):
                tokens = set(result.outputs[0].token_ids)
                assert asked.allowed_token_ids is None or tokens <= {4, 5, 40}
                assert not asked.logit_bias or tokens == {5}
                if asked.logprobs:
                    for token, logprobs in zip(result.outputs[0].token_ids, result.outputs[0].logprobs, strict=True):
                        assert token in logprobs
                        assert {1, 2, 3} <= {each.rank for each in logprobs.values()}
        assert programs_made() == before
    finally:
        shut_down(llm)


def test_a_step_is_one_launch_and_one_read(vllm: Any, model_of: Callable[[str], Path]) -> None:
    """Each of 20 steps computes a token of all requests: the prompts fit in the first one."""
    prompts = prompts_of([3, 9, 14, 6])
    settings = vllm.SamplingParams(temperature=0.5, max_tokens=20, ignore_eos=True, detokenize=False)
    llm = engine(vllm, model_of("Llama"))
    try:
        torch.tpu.synchronize()
        held = torch.tpu.memory_allocated()
        torch.tpu.reset_peak_memory_stats()
        with torch.tpu.explain() as explanation:
            generated(llm, prompts, settings)
        assert len(explanation.runs) == 20
        # The end of the block waits, too.
        assert len(explanation.waits) in (20, 21)
        assert torch.tpu.max_memory_allocated() < 1.2 * held
    finally:
        shut_down(llm)


def test_programs_for_a_tpu_elsewhere(model_of: Callable[[str], Path], tmp_path: Path) -> None:
    """`cache build --serve` writes the programs that a server with the weights compiles."""
    shutil.copy(model_of("Llama") / "config.json", tmp_path)
    options = ["--skip-tokenizer-init", "--max-num-seqs", "4", "--max-num-batched-tokens", "64"]
    options += ["--max-model-len", "256", "--kv-cache-memory-bytes", "4000000"]
    parts = ["import sys", "from torchtpu.vllm import ahead", "if sys.argv[3]: ahead.Worker = ahead.worker.Worker"]
    # The worker of a server, by the name that is looked up.
    parts += ["ahead.write_programs([sys.argv[1], *sys.argv[4:]], sys.argv[2])"]
    texts = []
    for folder, is_real in ((tmp_path, ""), (model_of("Llama"), "1")):
        programs = tmp_path / f"programs{is_real}"
        programs.mkdir()
        subprocess.run(
            [sys.executable, "-c", "\n".join(parts), folder, programs, is_real, *options],
            env=os.environ | {"TORCHTPU_DRY": "v6e:1x1", "TORCHTPU_CACHE": "0", "TORCHTPU_VLLM": "1"},
            check=True,
        )
        texts.append({path.read_text() for path in programs.glob("*.mlir")})
    assert texts[0] == texts[1]
    large = [text for text in texts[0] if "ragged_paged_attention" in text or "while" in text]
    assert len(large) >= 2


def test_a_seed_decides_what_is_drawn(vllm: Any, model_of: Callable[[str], Path]) -> None:
    prompts = prompts_of([30, 90, 120, 60])
    seeded = vllm.SamplingParams(seed=5, max_tokens=16, ignore_eos=True, detokenize=False)
    other = vllm.SamplingParams(max_tokens=16, ignore_eos=True, detokenize=False)
    llm = engine(vllm, model_of("Llama"))
    try:
        alone = generated(llm, prompts[:1], seeded)[0].outputs[0].token_ids
        among = generated(llm, prompts, [seeded, other, other, other])[0].outputs[0].token_ids
    finally:
        shut_down(llm)
    assert list(alone) == list(among)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"tensor_parallel_size": 2}, "tensor_parallel_size=2"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype=fp8"),
        ({"kv_cache_memory_bytes": 1 << 50}, "kv_cache_memory_bytes"),
    ],
)
def test_unsupported_options_are_named(
    options: dict[str, Any], name: str, vllm: Any, model_of: Callable[[str], Path]
) -> None:
    with pytest.raises(Exception, match=name):
        engine(vllm, model_of("Llama"), **options)


def test_unsupported_settings_are_refused(vllm: Any, model_of: Callable[[str], Path]) -> None:
    from vllm.exceptions import VLLMValidationError

    llm = engine(vllm, model_of("Llama"))
    try:
        with pytest.raises(VLLMValidationError, match="prompt_logprobs is not supported"):
            generated(llm, prompts_of([5]), vllm.SamplingParams(prompt_logprobs=1, detokenize=False))
        assert generated(llm, prompts_of([5]), vllm.SamplingParams(max_tokens=2, detokenize=False))
    finally:
        shut_down(llm)


def test_structured_output_and_aborts(vllm: Any, tmp_path: Path) -> None:
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "examples", "serving"))
    from small_model import write
    from vllm.sampling_params import StructuredOutputsParams

    write(tmp_path)
    llm = vllm.LLM(model=str(tmp_path), dtype="float32", max_num_seqs=4, max_num_batched_tokens=64, max_model_len=256)
    try:
        before = programs_made()
        chosen = vllm.SamplingParams(
            temperature=1.0, max_tokens=40, structured_outputs=StructuredOutputsParams(choice=["apple", "pear"])
        )
        plain = vllm.SamplingParams(temperature=0, max_tokens=5)
        answers = llm.generate(["a fruit: ", "a word: ", "one more: "], [chosen, plain, chosen], use_tqdm=False)
        assert {answers[0].outputs[0].text, answers[2].outputs[0].text} <= {"apple", "pear"}
        core = llm.llm_engine
        core.add_request("one", "to be aborted", vllm.SamplingParams(max_tokens=200, ignore_eos=True))
        core.step()
        core.abort_request(["one"])
        assert llm.generate(["after it"], plain, use_tqdm=False)[0].outputs[0].token_ids
        assert programs_made() == before
    finally:
        shut_down(llm)
