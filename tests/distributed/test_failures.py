"""Ranks that die, come late or call something else: the others raise, go on, and end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.distributed.flight_recorder import fr_trace

from tests.distributed.ranks import on_ranks
from tests.distributed.resuming import STEPS, losses_of_one_process
from tests.helpers import check_module


def seen(case: str, mode: str = "strict", **environment: str) -> list[Any]:
    """What each of two ranks sees; both end by themselves."""
    outcomes = on_ranks(2, "tests.distributed.failing", "see", case, mode, **environment)
    assert all(outcome.status == 0 and outcome.error is None for outcome in outcomes), outcomes
    return [outcome.value for outcome in outcomes]


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_rank_dies(mode: str) -> None:
    (first, second), _ = seen("a_rank_dies", mode)
    assert first.startswith("RuntimeError: ALLREDUCE (number 2 of process group '")
    assert "not all ranks have called it (missing: rank 1)" in first
    # The group has lost its connections: what follows fails at once, and says why.
    assert second.startswith("RuntimeError: BROADCAST (number 3 of process group '")
    assert "has failed before: in 2 ALLREDUCE sum 4 Float, not all ranks have called it (missing: rank 1)" in second


def test_a_rank_is_late() -> None:
    late, other = seen("a_rank_is_late")[::-1]
    assert other.startswith("RuntimeError: ALLREDUCE (number 2 of process group '")
    assert "missing: rank 1" in other
    assert "Timed out" in other
    assert "rank 0 waited in the same" in late


def test_shapes_differ() -> None:
    for error, then in seen("shapes_differ"):
        assert "rank 0: 2 ALLREDUCE sum 4 Float, rank 1: 2 ALLREDUCE sum 6 Float" in error
        assert then == [4.0] * 4


def test_collectives_differ() -> None:
    for error in seen("collectives_differ"):
        assert "rank 0: 2 BROADCAST root 0 4 Float, rank 1: 2 ALLREDUCE sum 4 Float" in error


def test_the_flight_recorder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for entries in seen("what_the_flight_recorder_saw", TORCH_FR_DUMP_TEMP_FILE=str(tmp_path / "rank_")):
        name, state, milliseconds = entries[0]
        assert (name, state) == ("tpu:all_reduce", "completed")
        assert milliseconds > 0
        assert entries[-1][1:] == ["scheduled", None]
    # PyTorch's own tool reads the files that the ranks wrote when the collective failed.
    fr_trace.main([str(tmp_path), "--prefix", "rank_"])
    assert "Collective sequence number: 3 has errors" in caplog.text
    assert "Expected collective type: 'broadcast' does not match found collective type: 'all_reduce'" in caplog.text
    assert {path.name for path in tmp_path.iterdir()} == {"rank_0", "rank_1"}


def test_the_duration_of_a_collective() -> None:
    (early, first), (_, second) = seen("the_duration_of_a_collective")
    words = "process group tpu: the duration of a collective is known when it has succeeded"
    assert early.startswith(f"RuntimeError: {words}")
    assert first > 0
    assert second > 0


def test_the_host_waits_too_short() -> None:
    (error, value), (_, other) = seen("the_host_waits_too_short", "fused")
    assert error.startswith("RuntimeError: ALLREDUCE (number 2 of process group '")
    assert error.endswith("did not end within 50 ms")
    assert value == other == [4.0] * 4


def test_a_message_does_not_come() -> None:
    error, _ = seen("a_message_does_not_come")
    assert error.startswith("RuntimeError: RECV (from rank 1, tag 0 of process group '")


def test_a_message_never_comes() -> None:
    assert seen("a_message_never_comes") == ["ends", "ends"]


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_process_ends_before_a_message_has_come(mode: str) -> None:
    assert seen("the_process_ends_before_a_message", mode) == ["sent", "received"]


def test_a_group_ends_when_its_messages_were_sent() -> None:
    (posted, ended), received = seen("the_sender_ends", "fused")
    assert (posted, ended) == (False, True)
    assert received == pytest.approx(64)


def test_what_is_refused() -> None:
    (outside, destroyed), _ = seen("what_is_refused")
    assert outside.startswith(("ValueError", "RuntimeError", "no error"))
    assert destroyed.startswith("ValueError: Default process group has not been initialized")


def test_training_resumes_after_a_rank_was_killed(tmp_path: Path) -> None:
    check_module("tests.distributed.resuming", str(tmp_path))
    losses = [float(line) for line in (tmp_path / "losses").read_text().split()]
    assert len(losses) == STEPS
    assert losses == pytest.approx(losses_of_one_process(), rel=1e-4)
