"""Tensors that grow, such as the caches of generation, have programs that take their size as an input."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.engine.caches import HEADS, WIDTH, attend, grow
from tests.helpers import assert_same, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_cache_that_grows_has_few_programs(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    made = []
    for _ in range(2):
        expected = torch.randn(1, HEADS, 3, WIDTH)
        cache = torch.cat([torch.empty(1, HEADS, 0, WIDTH, device=device), expected.to(device)], 2)
        for length in range(4, 16):
            new = torch.randn(1, HEADS, 1, WIDTH)
            cache, expected = grow(cache, new.to(device)), grow(expected, new)
            assert_same(attend(new.to(device), cache), attend(new, expected))
            made.append((length, programs_made()))
    # Some lengths are static at first. The cache of length 8 is held in a value of 16.
    assert len({programs for length, programs in made if length > 8}) == 1, made
    assert_same(cache, expected)


def test_what_is_joined_anew_in_each_call_stays_exact(device: torch.device) -> None:
    unpadded = torch.tpu.op_stats()["padded"]
    for length in (5, 9, 13, 7, 11):
        x = torch.zeros(length, 3, device=device)
        assert_same(torch.cat([x, x + 1]), torch.cat([torch.zeros(length, 3), torch.ones(length, 3)]))
    assert torch.tpu.op_stats()["padded"] == unpadded


def test_sizes_that_equal_a_changing_one_by_chance(device: torch.device) -> None:
    """The halves of a head have 8 elements: the calls on them keep their programs when the cache has 8 positions."""
    torch.tpu.set_eager_mode("strict")

    def rotated(x: Tensor) -> Tensor:
        return torch.cat([-x[..., 8:], x[..., :8]], -1)

    made = {}
    cache, expected = torch.zeros(1, HEADS, 2, 16, device=device), torch.zeros(1, HEADS, 2, 16)
    for length in range(3, 19):
        new = torch.randn(1, HEADS, 1, 16)
        cache, expected = grow(cache, rotated(new.to(device))), grow(expected, rotated(new))
        assert_same(attend(new.to(device), cache), attend(new, expected))
        made[length] = programs_made()
    assert made[15] == made[7], made


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_the_second_generation_compiles_nothing(device: torch.device, mode: str) -> None:
    transformers = pytest.importorskip("transformers")
    torch.tpu.set_eager_mode(mode)
    config = transformers.LlamaConfig(
        vocab_size=37,
        hidden_size=32,
        intermediate_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    prompt = torch.randint(37, (1, 5))
    settings = {"max_new_tokens": 40, "min_new_tokens": 40, "do_sample": False, "pad_token_id": 0}
    expected = model.generate(prompt, **settings)
    model = model.to(device)
    before, made = programs_made(), []
    for _ in range(3):
        assert_same(model.generate(prompt.to(device), **settings), expected)
        made.append(programs_made() - before)
    # Programs for each length would be about 400 in Strict.
    assert made[0] < 250, made
    assert made[1] == made[2] == made[0], made


def test_filled_places_of_merged_dimensions(device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    for size in (1, 2, 2, 3, 4, 2):
        x = torch.arange(2 * size).reshape(2, size)
        results = []
        for where in ("cpu", device):
            mask = x.to(where).flatten()
            mask.add_(mask)
            mask = mask < mask
            results.append(mask.index_fill_(0, torch.tensor([1, 2 * size - 1][:size], device=where), 1))
        assert_same(results[1], results[0])
