"""The row of crates/aten/src/ops/nn/paged_attention.rs, against attention of each sequence by itself."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor


class Mix(NamedTuple):
    """Sequences of one call: the number of tokens and of keys of each, and what the program is made for."""

    new: list[int]
    keys: list[int]
    tokens: int
    sequences: int
    heads: int = 4
    key_heads: int = 2
    width: int = 16
    page: int = 8
    places: int = 9
    dtype: torch.dtype = torch.float32
    options: dict[str, Any] = {}  # noqa: RUF012 (never written)


MIXES = {
    "one token each": Mix([1] * 5, [1, 17, 33, 64, 9], 8, 8),
    "one token each, all sequences": Mix([1] * 4, [1, 7, 8, 70], 4, 4, key_heads=4),
    "prompts and one token": Mix([20, 1, 7], [20, 30, 64], 40, 4, options={"scale": 0.25}),
    "a prompt of several blocks": Mix([70, 3], [70, 9], 80, 4, key_heads=1, options={"scale": 0.25}),
    "few tokens of few sequences": Mix([1, 3, 2], [5, 3, 10], 8, 8, options={"scale": 0.25}),
    "a soft cap": Mix([20, 1], [20, 40], 24, 2, options={"soft_cap": 3.0}),
    "a window": Mix([20, 1], [30, 72], 24, 2, options={"window": 6, "scale": 0.25}),
    "a window and one token each": Mix([1] * 3, [2, 72, 60], 4, 4, options={"window": 5, "soft_cap": 2.0}),
    "large pages": Mix([9, 4], [100, 4], 16, 2, page=128, places=2, options={"scale": 0.25}),
    "pages of one position": Mix([5, 1], [5, 8], 8, 2, page=1, places=8, options={"scale": 0.25}),
    "bfloat16": Mix([33, 7], [33, 60], 40, 4, heads=6, key_heads=3, dtype=torch.bfloat16, options={"scale": 0.2}),
    "no sequence": Mix([], [], 8, 2),
}


def attend(*call: Tensor, **options: Any) -> Tensor:
    return torch.ops.torchtpu.ragged_paged_attention(*call, **options)


def call_of(mix: Mix) -> list[Tensor]:
    """A call's tensors. Behind a sequence's keys its pages are NaN."""
    numbers = torch.randperm(mix.sequences * mix.places + 3)[: mix.sequences * mix.places]
    tables = numbers.reshape(mix.sequences, mix.places).int()
    pages = torch.full((len(numbers) + 3, mix.page, 2 * mix.key_heads, mix.width), math.nan, dtype=mix.dtype)
    for table, keys in zip(tables, mix.keys, strict=False):
        held = pages[table.long()].flatten(0, 1)
        held[:keys] = torch.randn(keys, 2 * mix.key_heads, mix.width).to(mix.dtype)
        pages[table.long()] = held.unflatten(0, (mix.places, mix.page))
    query = torch.randn(mix.tokens, mix.heads, mix.width).to(mix.dtype)
    lengths = torch.full((mix.sequences,), 77, dtype=torch.int32)
    starts = torch.full((mix.sequences + 1,), 3, dtype=torch.int32)
    lengths[: len(mix.keys)] = torch.tensor(mix.keys, dtype=torch.int32)
    starts[: len(mix.new) + 1] = torch.tensor([0, *mix.new], dtype=torch.int32).cumsum(0)
    return [query, pages, lengths, tables, starts, torch.tensor([len(mix.new)], dtype=torch.int32)]


def expected(mix: Mix, call: list[Tensor]) -> Tensor:
    query, pages, _, tables, *_ = call
    results = []
    parts = query.split([*mix.new, mix.tokens - sum(mix.new)])
    for new, keys, table, tokens in zip(mix.new, mix.keys, tables, parts, strict=False):
        held = pages[table.long()].flatten(0, 1)[:keys].double().unflatten(1, (mix.key_heads, 2))
        key, value = held.repeat_interleave(mix.heads // mix.key_heads, 1).unbind(2)
        scores = torch.einsum("thd,khd->htk", tokens.double(), key) * mix.options.get("scale", 1.0)
        if cap := mix.options.get("soft_cap"):
            scores = cap * torch.tanh(scores / cap)
        behind = torch.arange(keys - new, keys)[:, None] - torch.arange(keys)
        sees = (behind >= 0) & (behind < mix.options.get("window", keys))
        weights = scores.masked_fill(~sees, -math.inf).softmax(-1)
        results.append(torch.einsum("htk,khd->thd", weights, value))
    return torch.cat(results) if results else query[:0].double()


@pytest.mark.parametrize("name", MIXES)
def test_equals_attention_of_each_sequence(name: str, device: torch.device) -> None:
    mix = MIXES[name]
    call = call_of(mix)
    result = attend(*(each.to(device) for each in call), **mix.options).cpu()
    assert result.dtype == mix.dtype
    tolerance = 1e-5 if mix.dtype == torch.float32 else 1e-2
    torch.testing.assert_close(result[: sum(mix.new)].double(), expected(mix, call), rtol=tolerance, atol=tolerance)


def test_one_program_serves_all_lengths(device: torch.device) -> None:
    base = Mix([], [], 24, 4)
    for number, (new, keys) in enumerate([([1], [9]), ([20, 2], [60, 2]), ([6] * 4, [6, 7, 70, 30]), ([24], [24])]):
        mix = base._replace(new=new, keys=keys)
        call = call_of(mix)
        if number == 1:
            before = torch.tpu.cache_stats()["compiles"] + torch.tpu.cache_stats()["disk_hits"]
        result = attend(*(each.to(device) for each in call)).cpu()
        torch.testing.assert_close(result[: sum(new)].double(), expected(mix, call), rtol=1e-5, atol=1e-5)
    assert torch.tpu.cache_stats()["compiles"] + torch.tpu.cache_stats()["disk_hits"] == before


def test_graphs_hold_it(device: torch.device) -> None:
    mix = MIXES["prompts and one token"]
    call = call_of(mix)

    @torch.compile(fullgraph=True)
    def twice(*tensors: Tensor) -> Tensor:
        return attend(*tensors, **mix.options) * 2

    result = twice(*(each.to(device) for each in call)).cpu()
    torch.testing.assert_close(result[: sum(mix.new)].double(), 2 * expected(mix, call), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("place", "wrong", "error"),
    [
        (0, torch.zeros(8, 3, 16), "does not fit pages"),
        (0, torch.zeros(8, 4, 8), "does not fit pages"),
        (0, torch.zeros(8, 4, 16, dtype=torch.bfloat16), "one float dtype"),
        (1, torch.zeros(3, 8, 16), "pages has 3 dimensions instead of 4"),
        (2, torch.zeros(8, dtype=torch.int64), "lengths is torch.int64 instead of torch.int32"),
        (4, torch.zeros(8, dtype=torch.int32), "starts and count have the shapes"),
    ],
)
def test_what_does_not_belong_together_is_refused(place: int, wrong: Tensor, error: str, device: torch.device) -> None:
    call = call_of(MIXES["one token each"])
    call[place] = wrong
    with pytest.raises((ValueError, TypeError), match=error):
        attend(*(each.to(device) for each in call))


@pytest.mark.parametrize("options", [{"window": 0}, {"soft_cap": 0.0}])
def test_numbers_must_be_positive(options: dict[str, Any], device: torch.device) -> None:
    call = [each.to(device) for each in call_of(MIXES["one token each"])]
    with pytest.raises(ValueError, match="must be positive"):
        attend(*call, **options)
