"""vLLM with a model that two processes share, each with a device."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.engines import engine, expected, generated, model_of, prompts_of, shut_down, vllm

__all__ = ["model_of", "vllm"]  # fixtures

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def state_of(worker: Any) -> tuple[int, int]:
    """The programs that a worker's process has compiled, and the numbers in its weights."""
    compiles = torch.tpu.cache_stats()["compiles"]  # type: ignore[attr-defined]
    return compiles, sum(each.numel() for each in worker.weights.values())


@pytest.mark.parametrize("name", ["Llama", "Gemma3", "a mixture of experts"])
def test_tokens_are_those_of_transformers(
    name: str, vllm: Any, model_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    # To send a function to the workers.
    monkeypatch.setenv("VLLM_ALLOW_INSECURE_SERIALIZATION", "1")
    folder = model_of(name)
    prompts = prompts_of([1, 2, 200, 17, 64, 33, 7])
    greedy = vllm.SamplingParams(temperature=0, max_tokens=10, ignore_eos=True, detokenize=False)
    drawn = vllm.SamplingParams(max_tokens=10, ignore_eos=True, detokenize=False, logprobs=2)
    whole = engine(vllm, folder)
    numbers = whole.collective_rpc(state_of)[0][1]
    shut_down(whole)
    llm = engine(vllm, folder, tensor_parallel_size=2)
    try:
        before = llm.collective_rpc(state_of)
        # More than half: both have the norms and other small parts.
        assert all(numbers / 2 <= count < 0.65 * numbers for _, count in before)
        # What a process draws, the other one draws, too: else their caches would differ.
        for settings in (drawn, [greedy, drawn] * 3 + [greedy]):
            generated(llm, prompts, settings)
        found = [list(each.outputs[0].token_ids) for each in generated(llm, prompts, greedy)]
        assert llm.collective_rpc(state_of) == before
    finally:
        shut_down(llm)
    assert found == expected(folder, prompts, 10)


def test_what_two_processes_cannot_share_is_refused(vllm: Any, model_of: Callable[[str], Path]) -> None:
    with pytest.raises(Exception, match="enable_lora with tensor_parallel_size=2 is not supported"):
        engine(vllm, model_of("Llama"), tensor_parallel_size=2, enable_lora=True)
