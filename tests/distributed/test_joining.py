"""Collectives in Fused that are parts of larger programs where all ranks have recorded the same, on a client of several
processes (tpu_of_processes.c)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed import joining
from tests.distributed.ranks import values_on_ranks
from tests.distributed.test_programs import THREE
from tests.plugins import build_plugin
from tests.settings import SEED

MODULE = "tests.distributed.joining"


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    source = Path(__file__).with_name("tpu_of_processes.c")
    built = build_plugin(source, tmp_path_factory.mktemp("plugin"), "tpu_of_processes.so")
    return {"TORCHTPU_PLUGIN": str(built)}


@pytest.mark.one_mode
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
def test_a_training_step_becomes_one_program(plugin: dict[str, str], wrapper: str) -> None:
    expected = joining.losses_of_one_process(2, 10)
    for each in values_on_ranks(2, MODULE, "steps_join", wrapper, 10, **plugin):
        assert each["losses"] == pytest.approx(expected, rel=1e-4)
        assert each["runs"][0] > 3
        # A host that is kept waiting may cut a step.
        assert min(each["runs"][-4:]) == 1, each
        assert each["compiles"][each["runs"].index(1, 6)] == 0, each


@pytest.mark.one_mode
@pytest.mark.parametrize("ranks", [2, 3])
def test_ranks_diverge(plugin: dict[str, str], ranks: int) -> None:
    environment = {**plugin, **(THREE if ranks == 3 else {})}
    counts = values_on_ranks(ranks, MODULE, "steps_diverge", SEED, 112, 0.3, **environment)
    for each in counts:
        assert each["joined"] > 10, counts
        assert each["cut"] > 10, counts


@pytest.mark.one_mode
@pytest.mark.parametrize("after", [1, 6])
def test_a_rank_leaves_the_loop(plugin: dict[str, str], after: int) -> None:
    stayed, left = values_on_ranks(2, MODULE, "a_rank_leaves", after, TPU_OF_PROCESSES_SECONDS="8", **plugin)
    assert stayed["error"]
    assert stayed["done"] == after
    assert (left["error"], left["done"]) == ("", after)
    assert stayed["value"] == left["value"] == [2.0] * 4


@pytest.mark.one_mode
def test_hosts_wait_for_each_other(plugin: dict[str, str]) -> None:
    for each in values_on_ranks(2, MODULE, "hosts_wait_for_each_other", 40, **plugin):
        assert each["values"] == [2.0 * step + 1 for step in range(40)]
        assert each["paused"] < 12


@pytest.mark.one_mode
def test_messages_between_collectives(plugin: dict[str, str]) -> None:
    sums = [2.0 * step + 3 for step in range(10)]
    sent, received = values_on_ranks(2, MODULE, "messages_between", 10, **plugin)
    assert sent[::2] == [101.0] * 10
    assert received[::2] == [2 * value + 1 for value in sums]
    assert sent[1::2] == received[1::2] == [2 * value for value in sums]


@pytest.mark.one_mode
def test_results_that_one_rank_does_not_use(plugin: dict[str, str]) -> None:
    read, dropped = values_on_ranks(2, MODULE, "results_are_not_used", 8, **plugin)
    assert read == [4.0 * (step + 1) for step in range(8)]
    assert dropped == []
