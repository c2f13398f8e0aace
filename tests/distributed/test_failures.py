"""Ranks that die, come late or call something else: the others raise, go on, and end."""

from __future__ import annotations

import pytest

from tests.distributed.launch import torchrun


def run(case: str, mode: str = "strict") -> list[str]:
    """The lines of rank 0, then those of rank 1, each without its rank."""
    finished = torchrun(["-m", "tests.distributed.failing", case, mode])
    lines = [line for line in finished.stdout.splitlines() if line.startswith("rank ")]
    return sorted(lines, key=lambda line: line[:6])


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_rank_dies(mode: str) -> None:
    error, computes, *_ = run("a_rank_dies", mode)
    assert error.startswith("rank 0: RuntimeError: ALLREDUCE (number 2 of process group '")
    assert computes == "rank 0: still computes 4.0"


def test_a_rank_is_late() -> None:
    error, computes, *_ = run("a_rank_is_late")
    assert error.startswith("rank 0: RuntimeError: ALLREDUCE (number 2 of process group '")
    assert "Timed out" in error
    assert computes == "rank 0: still computes 4.0"


def test_shapes_differ() -> None:
    lines = run("shapes_differ")
    assert len(lines) == 8
    for first in (0, 4):
        error, computes, then, ends = lines[first : first + 4]
        assert "rank 0: 2 ALLREDUCE sum 4 Float, rank 1: 2 ALLREDUCE sum 6 Float" in error
        assert computes.endswith("still computes 4.0")
        assert then.endswith("then [4.0, 4.0, 4.0, 4.0]")
        assert ends.endswith("ends")


def test_collectives_differ() -> None:
    lines = run("collectives_differ")
    for line in lines[0], lines[3]:
        assert "rank 0: 2 BROADCAST root 0 4 Float, rank 1: 2 ALLREDUCE sum 4 Float" in line


def test_a_message_never_comes() -> None:
    assert run("a_message_never_comes") == ["rank 0: ends", "rank 1: ends"]
