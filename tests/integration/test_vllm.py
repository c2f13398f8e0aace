"""vLLM on the device, with small random models. `make test-serving` installs vLLM and runs this.

The engine runs in the process of the test, so that its counters can be read.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.helpers import programs_made
from tests.integration.engines import (
    MODELS,
    engine,
    expected,
    generated,
    model_of,
    prompts_of,
    reference,
    shut_down,
    tighter_programs,
    vllm,
)

__all__ = ["model_of", "vllm"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def counted(llm: Any) -> dict[str, int]:
    """The counters of vLLM's engines in this process."""
    return {each.name: each.value for each in llm.get_metrics() if hasattr(each, "value")}


@pytest.mark.parametrize("name", MODELS)
def test_greedy_tokens_are_those_of_transformers(name: str, vllm: Any, model_of: Callable[[str], Path]) -> None:
    """32 prompts of 1 to 200 tokens. Some are longer than a step (64 tokens), some share prefixes, and they do not all
    fit in the cache at once: they are chunked, taken from the cache, and preempted."""
    drawn = random.Random(1)
    lengths = [1, 2, 200, 3, 17, 64, 100, 65, 33, 128, 7, 150, 16, 15, 199, 63]
    lengths += [drawn.randrange(1, 201) for _ in range(12)]
    prompts = prompts_of(lengths)
    prompts += [prompts[2][:120] + each for each in prompts_of([5, 40, 1, 80])]
    settings = vllm.SamplingParams(temperature=0, max_tokens=12, ignore_eos=True, detokenize=False)
    llm = engine(vllm, model_of(name), num_gpu_blocks_override=30, disable_log_stats=False)
    try:
        before = counted(llm)
        found = [list(each.outputs[0].token_ids) for each in generated(llm, prompts, settings)]
        again = [list(each.outputs[0].token_ids) for each in generated(llm, prompts, settings)]
        after = counted(llm)
    finally:
        shut_down(llm)
    assert found == expected(model_of(name), prompts, 12)
    assert again == found
    assert sum(len(prompt) > 64 for prompt in prompts) >= 10
    for name in ("vllm:num_preemptions", "vllm:prefix_cache_hits"):
        assert after[name] > before[name], name


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
        {"prompt_logprobs": 2},
        {"seed": 7},
        {"allowed_token_ids": [4, 5, 40]},
        {"min_tokens": 1},
        {"n": 3},
    ]
    # Programs of other sizes than those of other tests.
    llm = engine(vllm, model_of("Llama"), max_model_len=240)
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
        # The background makes the tighter ones, and no step waits for them.
        tighter = tighter_programs(llm)
        assert programs_made() == before + tighter
    finally:
        shut_down(llm)


def test_logprobs_of_prompts_are_those_of_transformers(vllm: Any, model_of: Callable[[str], Path]) -> None:
    """A prompt of a token, one of several steps, one whose prefix is in the cache, and others beside them."""
    prompts = prompts_of([1, 2, 30, 200])
    prompts.append(prompts[3][:150])
    settings = [
        vllm.SamplingParams(max_tokens=3, prompt_logprobs=most, detokenize=False) for most in (2, 0, None, 3, 1)
    ]
    llm = engine(vllm, model_of("Llama"))
    try:
        results = generated(llm, prompts, settings)
    finally:
        shut_down(llm)
    assert results[2].prompt_logprobs is None
    model = reference(model_of("Llama"))
    for prompt, asked, result in zip(prompts, settings, results, strict=True):
        if asked.prompt_logprobs is None:
            continue
        with torch.no_grad():
            logs = model(torch.tensor([prompt])).logits[0].log_softmax(-1)
        assert len(result.prompt_logprobs) == len(prompt)
        assert result.prompt_logprobs[0] is None
        for row, token, found in zip(logs, prompt[1:], result.prompt_logprobs[1:], strict=False):
            assert found[token].rank == int((row >= row[token]).sum())
            assert found[token].logprob == pytest.approx(float(row[token]), abs=1e-3)
            top = row.topk(asked.prompt_logprobs).indices.tolist()
            assert set(found) == {token, *top}


def test_a_cache_is_written_in_place_in_bfloat16(vllm: Any, model_of: Callable[[str], Path]) -> None:
    """XLA's programs for a CPU would copy a cache of bfloat16 at each write, so it is float32."""
    llm = engine(vllm, model_of("Llama"), dtype="bfloat16")
    try:
        (caches,) = llm.collective_rpc(lambda worker: {(each.dtype, each.numel()) for each in worker._caches})
        ((dtype, numel),) = caches
        settings = vllm.SamplingParams(max_tokens=4, temperature=0, detokenize=False)
        (result,) = generated(llm, prompts_of([20]), settings)
        before = torch.tpu.memory_allocated()
        torch.tpu.reset_peak_memory_stats()
        generated(llm, prompts_of([20]), settings)
        grown = torch.tpu.max_memory_allocated() - before
    finally:
        shut_down(llm)
    assert dtype == torch.float32
    assert grown < numel * 4
    assert len(result.outputs[0].token_ids) == 4


def test_few_tokens_get_a_tighter_program(
    vllm: Any, model_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first requests are answered by the programs of the start, the next ones by those of the background. The model
    is not traced for them, because the server would stand still."""
    prompts = prompts_of([5, 12, 40])
    settings = vllm.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, detokenize=False)
    adjusted = vllm.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, detokenize=False, logprobs=1)
    llm = engine(vllm, model_of("Llama"), max_model_len=224, enable_prefix_caching=False)
    monkeypatch.setattr("torchtpu.vllm.programs._graph", None)
    try:
        before = programs_made()
        answers = [[list(generated(llm, [each], settings)[0].outputs[0].token_ids) for each in prompts]]
        for _ in range(3):
            generated(llm, prompts[1:2], settings)
        assert tighter_programs(llm) == 2
        assert programs_made() == before + 2
        with torch.tpu.explain() as explanation:
            answers.append([list(generated(llm, [each], settings)[0].outputs[0].token_ids) for each in prompts])
        alone = [run["program"] for run in explanation.runs]
        with torch.tpu.explain() as explanation:
            answers.append([list(generated(llm, [each], adjusted)[0].outputs[0].token_ids) for each in prompts])
        others = len(explanation.runs)
        assert programs_made() == before + 2
    finally:
        shut_down(llm)
    assert answers == [expected(model_of("Llama"), prompts, 6)] * 3
    # 5 tokens fit in 8, 12 in 16, and 40 in 64; the others are one each.
    assert [alone.count(each) for each in dict.fromkeys(alone)] == [1, 15, 1, 1]
    # The logits of a tighter program have too few rows for the one that adjusts them.
    assert others == 36


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
    """`cache build --serve` writes the programs that a server with the weights compiles, and the tighter ones, which
    that one compiles later."""
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
    assert texts[0] > texts[1]
    steps = [[text for text in each if "ragged_paged_attention" in text or "while" in text] for each in texts]
    assert [len(each) for each in steps] == [4, 2]


def test_attention_of_a_tpus_programs_is_the_kernel(model_of: Callable[[str], Path], tmp_path: Path) -> None:
    """The kernel takes heads whose width is a multiple of 128. It is chosen by sizes, so these must not be symbols."""
    pytest.importorskip("jax", reason="the kernel's text is JAX's")
    config = json.loads((model_of("Llama") / "config.json").read_text())
    config |= {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 128}
    (tmp_path / "config.json").write_text(json.dumps(config))
    programs = tmp_path / "programs"
    programs.mkdir()
    options = ["--skip-tokenizer-init", "--dtype", "bfloat16", "--max-num-seqs", "4", "--max-num-batched-tokens", "64"]
    options += ["--max-model-len", "256", "--kv-cache-memory-bytes", "4000000"]
    write = (
        "import sys; from torchtpu.vllm import ahead; ahead.write_programs([sys.argv[1], *sys.argv[3:]], sys.argv[2])"
    )
    subprocess.run(
        [sys.executable, "-c", write, tmp_path, programs, *options],
        env=os.environ | {"TORCHTPU_DRY": "v6e:1x1", "TORCHTPU_CACHE": "0", "TORCHTPU_VLLM": "1"},
        check=True,
    )
    texts = [path.read_text() for path in programs.glob("*.mlir")]
    assert sum("tpu_custom_call" in text for text in texts) == 4
    assert not any("stablehlo.while" in text for text in texts)


def test_an_engine_in_a_process_of_its_own(
    vllm: Any, model_of: Callable[[str], Path], device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This process has used the device, so vLLM may not fork it."""
    torch.zeros(1).to(device)
    monkeypatch.setenv("VLLM_ENABLE_V1_MULTIPROCESSING", "1")
    prompts = prompts_of([5, 70])
    settings = vllm.SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, detokenize=False)
    llm = engine(vllm, model_of("Llama"))
    try:
        found = [list(each.outputs[0].token_ids) for each in generated(llm, prompts, settings)]
    finally:
        shut_down(llm)
    assert found == expected(model_of("Llama"), prompts, 6)


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
        ({"pipeline_parallel_size": 2}, "pipeline_parallel_size=2"),
        ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype=fp8"),
        ({"kv_cache_memory_bytes": 1 << 50}, "kv_cache_memory_bytes"),
        ({"cpu_offload_gb": 1.0}, "cpu_offload_gb=1.0 is not supported"),
        ({"kv_offloading_size": 2.0}, "kv_offloading_size=2.0 is not supported"),
        ({"model_impl": "nosuch"}, "model_impl=nosuch is not supported: auto, vllm, transformers are"),
        ({"kv_sharing_fast_prefill": True}, "kv_sharing_fast_prefill=True is not supported"),
    ],
)
def test_unsupported_options_are_named(
    options: dict[str, Any], name: str, vllm: Any, model_of: Callable[[str], Path]
) -> None:
    with pytest.raises(Exception, match=name):
        engine(vllm, model_of("Llama"), **options)


@pytest.mark.parametrize(
    ("options", "warned"),
    [
        ({"attention_backend": "FLASH_ATTN"}, ["attention_backend"]),
        ({"moe_backend": "triton"}, ["moe_backend"]),
        ({}, []),
    ],
)
def test_options_without_effect_are_named(
    options: dict[str, Any],
    warned: list[str],
    vllm: Any,
    model_of: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from torchtpu.vllm import platform

    found: list[str] = []
    monkeypatch.setattr(platform.logger, "warning", lambda text, option, value: found.append(option))
    vllm.EngineArgs(model=str(model_of("Llama")), skip_tokenizer_init=True, **options).create_engine_config()
    assert found == warned


@pytest.mark.parametrize("name", ["VLLM_RAISE_ON_LOGIT_NANS", "VLLM_COMPUTE_NANS_IN_LOGITS"])
def test_unsupported_variables_are_named(
    name: str, vllm: Any, model_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(Exception, match=f"{name}=1 is not supported"):
        engine(vllm, model_of("Llama"))


def test_unsupported_settings_are_refused(vllm: Any, model_of: Callable[[str], Path]) -> None:
    from vllm.exceptions import VLLMValidationError

    llm = engine(vllm, model_of("Llama"))
    try:
        with pytest.raises(VLLMValidationError, match="logprob_token_ids is not supported"):
            generated(llm, prompts_of([5]), vllm.SamplingParams(logprob_token_ids=[1], detokenize=False))
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
        longer = chosen.clone()
        longer.min_tokens = 30
        prompts = ["a fruit: ", "a word: ", "one more: ", "a long one: "]
        answers = llm.generate(prompts, [chosen, plain, chosen, longer], use_tqdm=False)
        for row in (0, 2, 3):
            assert answers[row].outputs[0].text in {"apple", "pear"}
            assert answers[row].outputs[0].finish_reason == "stop"
        # As on CUDA, a request whose grammar allows only a bad word ends with an error, and others go on.
        forbidden = chosen.clone()
        forbidden.structured_outputs = StructuredOutputsParams(choice=["apple"])
        forbidden.bad_words = ["p"]
        answers = llm.generate(prompts[:2], [forbidden, plain], use_tqdm=False)
        assert [each.outputs[0].finish_reason for each in answers] == ["error", "length"]
        assert answers[0].outputs[0].text.startswith("a")
        core = llm.llm_engine
        core.add_request("one", "to be aborted", vllm.SamplingParams(max_tokens=200, ignore_eos=True))
        core.step()
        core.abort_request(["one"])
        assert llm.generate(["after it"], plain, use_tqdm=False)[0].outputs[0].token_ids
        tighter = tighter_programs(llm)
        assert programs_made() == before + tighter
    finally:
        shut_down(llm)
