"""Dimensions that are marked: their sizes are inputs of programs from the first time on."""

from __future__ import annotations

import pytest
import torch
from torchtpu import _C

from tests.engine.caches import HEADS, WIDTH, attend, grow
from tests.helpers import assert_same, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_marked_cache_grows_with_few_programs(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    expected = torch.randn(1, HEADS, 3, WIDTH)
    cache = expected.to(device)
    torch.tpu.mark_dynamic(cache, 2, max=64)
    made = []
    for length in range(4, 16):
        new = torch.randn(1, HEADS, 1, WIDTH)
        cache, expected = grow(cache, new.to(device)), grow(expected, new)
        assert_same(attend(new.to(device), cache), attend(new, expected))
        made.append(programs_made())
        assert cache.shape[2] == length
    assert len(set(made[2:])) == 1, made
    assert_same(cache, expected)


def test_a_marked_dimension_has_one_program_from_the_first_size_on(device: torch.device) -> None:
    made = set()
    for length in (5, 9, 31, 13):
        x = torch.randn(3, length, 29)
        given = x.to(device)
        torch.tpu.mark_dynamic(given, 1, max=32)
        assert_same(given.softmax(1).sum(-1), x.softmax(1).sum(-1))
        assert_same(given, x)
        made.add(programs_made())
    assert len(made) == 1


def test_later_uploads_of_the_line_need_no_mark(device: torch.device) -> None:
    made = set()
    for number, (rows, length) in enumerate([(4, 5), (7, 9), (31, 16), (17, 2)]):
        x = torch.randn(rows, length, 23)
        given = x.to(device)
        if number == 0:
            torch.tpu.mark_dynamic(given, 0, max=40)
            torch.tpu.mark_dynamic(given, -2)
        padded = torch.tpu.op_stats()["padded"]
        assert_same((given * 2).amax(0).cumsum(0), (x * 2).amax(0).cumsum(0))
        assert torch.tpu.op_stats()["padded"] == padded
        made.add(programs_made())
    assert len(made) == 1


def test_what_is_computed_can_be_marked(device: torch.device) -> None:
    made = set()
    for length in (5, 9, 13):
        x = torch.zeros(length, 27, device=device)
        torch.tpu.mark_dynamic(x, 0)
        made_before = programs_made()
        assert_same(x.exp().mean(0), torch.ones(27))
        made.add(programs_made() - made_before)
    assert made - {0} == {max(made)}
    assert 0 in made


def test_marks_that_are_refused(device: torch.device) -> None:
    x = torch.ones(4, 6).to(device)
    with pytest.raises(IndexError, match="out of range"):
        torch.tpu.mark_dynamic(x, 2)
    with pytest.raises(ValueError, match="max=3"):
        torch.tpu.mark_dynamic(x, 0, max=3)
    with pytest.raises(ValueError, match="on cpu"):
        torch.tpu.mark_dynamic(torch.ones(4), 0)
    with pytest.raises(ValueError, match="at least 2"):
        torch.tpu.mark_dynamic(x[:1], 0)
    for part in (x[1:], x[:, :2], x[:2]):
        with pytest.raises(RuntimeError, match="covers its storage"):
            torch.tpu.mark_dynamic(part, 0)


def test_marks_have_no_effect_on_static_sizes(device: torch.device) -> None:
    _C.set_sizes("static")
    x = torch.ones(4, 6).to(device)
    padded = torch.tpu.op_stats()["padded"]
    torch.tpu.mark_dynamic(x, 0)
    assert_same(x + 1, torch.full((4, 6), 2.0))
    assert torch.tpu.op_stats()["padded"] == padded


def test_dynamos_marks_are_marks(device: torch.device) -> None:
    made = set()
    for length in (5, 9, 31, 13):
        x = torch.randn(3, length, 28)
        given = x.to(device)
        torch._dynamo.mark_dynamic(given, 1, max=32)
        torch._dynamo.mark_dynamic(given, 2, min=2)
        assert_same(torch.cat([given, given]).softmax(1), torch.cat([x, x]).softmax(1))
        assert_same(given[:, 2:] * 2, x[:, 2:] * 2)
        made.add(programs_made())
    assert len(made) == 1


def test_dynamos_marks_that_mean_nothing_here(device: torch.device) -> None:
    x = torch.randn(4, 1, 6)
    given, part = x.to(device), x.to(device)[1:]
    for tensor, dim in ((given, 1), (given, 7), (part, 0)):
        torch._dynamo.mark_dynamic(tensor, dim)
    padded = torch.tpu.op_stats()["padded"]
    assert_same(given.exp() + given, x.exp() + x)
    assert_same(part.exp() + part, x[1:].exp() + x[1:])
    assert torch.tpu.op_stats()["padded"] == padded
