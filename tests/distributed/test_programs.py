"""Collectives as programs on a client of several processes, with a plugin that acts as libtpu does
(tpu_of_processes.c)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from torchtpu.distributed import processes

from tests.distributed import training
from tests.distributed.ranks import check_cases, on_ranks, values_on_ranks
from tests.helpers import check_python
from tests.plugins import build_plugin
from tests.settings import SEED


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment for ranks with this plugin. Its name makes it the plugin of a TPU."""
    source = Path(__file__).with_name("tpu_of_processes.c")
    built = build_plugin(source, tmp_path_factory.mktemp("plugin"), "tpu_of_processes.so")
    return {"TORCHTPU_PLUGIN": str(built)}


# No host has three chips.
THREE = {"TPU_PROCESS_BOUNDS": "3,1,1"}


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_collectives_of_two_ranks(plugin: dict[str, str], mode: str) -> None:
    check_cases("collectives", mode, 2, **plugin)


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_training_on_two_ranks(plugin: dict[str, str], mode: str) -> None:
    check_cases("training", mode, 2, "ddp", "ddp_with_few_buckets_as_views", "fsdp2", "fsdp2_compiled", **plugin)


def test_training_on_a_mesh_of_four_ranks(plugin: dict[str, str]) -> None:
    check_cases("parallel", "fused", 4, "hybrid_sharding_compiled", "sharding_and_tensor_parallel", **plugin)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_all_of_training(plugin: dict[str, str], mode: str) -> None:
    # `explained` is about collectives that are jobs of the host.
    check_cases("training", mode, 2, *(name for name in training.CASES if name != "explained"), **plugin)
    check_cases("training", mode, 3, "ddp", "fsdp2", "distributed_tensors", "pipelines", **plugin, **THREE)
    names = ("hybrid_sharding", "sharding_and_tensor_parallel")
    names = (*names, *(f"{name}_compiled" for name in names), "expert_parallel", "pipelines")
    check_cases("parallel", mode, 4, *names, **plugin)


def test_parts_of_different_sizes_are_programs(plugin: dict[str, str]) -> None:
    outcomes = values_on_ranks(3, "tests.distributed.programs", "parts_of_different_sizes", **plugin, **THREE)
    for rank, each in enumerate(outcomes):
        assert each["jobs"] == []
        for step, values in enumerate(each["values"]):
            gathered = [float(step + other) for other in range(3) for _ in range(other + 1)]
            assert values == [*gathered, *[6.0 * (step + rank)] * (rank + 1)]


def test_they_are_programs(plugin: dict[str, str]) -> None:
    for each in values_on_ranks(3, "tests.distributed.programs", "collectives_are_programs", **plugin, **THREE):
        assert (each["jobs"], each["programs"]) == ([], 2)
        assert each["devices"] == 3
        assert each["value"] == 6.0
    assert values_on_ranks(2, "tests.distributed.programs", "collectives_are_programs")[0]["jobs"] != []


def test_they_end_with_their_groups(plugin: dict[str, str]) -> None:
    for counts in values_on_ranks(2, "tests.distributed.programs", "programs_end_with_their_groups", **plugin):
        assert counts == [1, 0, 1, 0, 0]


@pytest.mark.one_mode
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_step_with_its_collectives_is_one_program(plugin: dict[str, str], mode: str, wrapper: str) -> None:
    for each in values_on_ranks(2, "tests.distributed.steps", "steps_as_one_program", mode, wrapper, **plugin):
        (cut, cut_runs, _), (inside, runs, reasons) = each["cut"], each["inside"]
        assert inside == pytest.approx(cut, rel=1e-5)
        assert cut_runs[-1] > 2
        assert runs[-1] == 1, reasons


def test_what_cuts_a_step(plugin: dict[str, str]) -> None:
    sums = [2.0 * (102 + i) for i in range(4)]
    for each in values_on_ranks(2, "tests.distributed.steps", "what_cuts_a_step", **plugin):
        values, reasons, is_done = each["one group"]
        assert (values, len(reasons), is_done) == ([2 * x for x in sums], 1, True), reasons
        values, reasons, is_done = each["two groups"]
        assert (values, is_done) == (sums, True)
        assert sum("another group" in reason for reason in reasons) == 1, reasons


@pytest.mark.parametrize("how", ["operator", "result"])
def test_a_promise_is_broken(plugin: dict[str, str], how: str) -> None:
    for each in values_on_ranks(2, "tests.distributed.steps", "a_promise_is_broken", how, **plugin):
        assert "the ranks have called different collectives" in each["error"]
        assert re.search(r"rank 0: program (\w+): \d+ operators, 1 collectives, rank 1: program (?!\1)", each["error"])
        assert each["after"] == [2.0] * 4
        assert each["together"] == [4.0] * 4


def test_a_rank_does_not_come(plugin: dict[str, str]) -> None:
    error, other = values_on_ranks(2, "tests.distributed.steps", "a_rank_does_not_come", **plugin)
    assert "not all ranks have called it" in error
    assert "rank 1" in error
    assert other == ""


@pytest.mark.parametrize("delays", [False, True])
def test_ranks_diverge(plugin: dict[str, str], delays: bool) -> None:
    assert min(values_on_ranks(3, "tests.distributed.diverging", "steps", 2 * SEED + delays, 50, **plugin, **THREE)) > 0


def test_a_rank_dies(plugin: dict[str, str]) -> None:
    environment = {**plugin, **THREE, "TPU_OF_PROCESSES_SECONDS": "10"}
    outcomes = on_ranks(3, "tests.distributed.programs", "a_rank_dies", **environment)
    assert outcomes[1].status != 0
    for outcome in (outcomes[0], outcomes[2]):
        assert outcome.error is None, outcome.error
        # The error names process 1, or another process that stopped because of it.
        assert outcome.value["error"].startswith("ALLREDUCE (number 2 of process group '")
        assert "does not answer" in outcome.value["error"]
        assert outcome.value["computed"] == 4.0


@pytest.mark.parametrize(("mode", "how"), [("strict", "read"), ("fused", "synchronize"), ("fused", "event")])
def test_a_rank_does_not_call(plugin: dict[str, str], mode: str, how: str) -> None:
    """The plugin waits for long: the wait of the host ends by the timeout of the group."""
    environment = {**plugin, "TPU_OF_PROCESSES_SECONDS": "1000"}
    seen, _ = values_on_ranks(2, "tests.distributed.programs", "a_rank_does_not_call", mode, how, **environment)
    call, missing = "ALLREDUCE (number 5 of process group '", "not all ranks have called it (missing: rank 1)"
    assert call in seen["first"]
    assert missing in seen["first"]
    assert seen["waited"] < 12
    refused, again = seen["later"]
    assert "the process group has failed before: in " in refused
    assert missing in refused
    # Rank 1 may have ended by then.
    assert call in again


def test_shapes_differ(plugin: dict[str, str]) -> None:
    for each in values_on_ranks(2, "tests.distributed.programs", "shapes_differ", **plugin):
        assert each["error"].startswith("ALLREDUCE (number 1 of process group '")
        assert "has launched program" in each["error"]
        assert each["computed"] == 4.0


def test_the_device_was_used_before(plugin: dict[str, str]) -> None:
    for error in values_on_ranks(2, "tests.distributed.programs", "use_the_device_before", **plugin):
        assert "init_process_group must be called before the first use of a tpu device" in error


@pytest.mark.parametrize("how", ["plain", "set", "id", "accelerator"])
def test_devices_have_the_numbers_of_local_ranks(plugin: dict[str, str], how: str) -> None:
    name = "devices_have_the_numbers_of_local_ranks"
    for rank, each in enumerate(values_on_ranks(2, "tests.distributed.programs", name, how, **plugin)):
        assert (each["count"], each["current"], each["total"]) == (2, rank, 2.0)
        assert each["places"] == [f"tpu:{rank}"] * 3
        assert f"tpu:{1 - rank} is the chip of another process" in each["other"]
        assert each["allocated"]
        assert each["name"]


@pytest.mark.parametrize("how", ["plain", "set", "to"])
def test_processes_that_python_spawns(plugin: dict[str, str], how: str) -> None:
    """As in PyTorch's tutorials: the first process counts the devices, and starts one for each."""
    code = "from tests.distributed.spawned import main; main({!r})"
    chips = {"TPU_CHIPS_PER_HOST_BOUNDS": "1,2,1", **plugin}
    assert sorted(check_python(code.format(how), **chips).split()) == ["0:tpu:0:3.0", "1:tpu:1:3.0"]


def test_a_spawned_process_has_the_chip_of_its_number(plugin: dict[str, str]) -> None:
    code = "from tests.distributed.spawned import main; main('other')"
    output = check_python(code, TPU_CHIPS_PER_HOST_BOUNDS="1,2,1", **plugin)
    refusal = "tpu:0 was set as the current device, but rank 1 has tpu:1: its number among the ranks of this host is 1"
    assert sorted(output.splitlines()) == [f"rank 1: {refusal}", refusal]


def test_ranks_of_several_hosts() -> None:
    store = torch.distributed.HashStore()
    for rank, host in enumerate(["a", "b", "a", "b", "b"]):
        store.set(f"host of {rank}", host)

    class Hosts:
        """The store after each rank has written its host."""

        def set(self, name: str, value: str) -> None:
            if name == "host of all":
                store.set(name, value)

        get = store.get

    found = [processes.local_variables(Hosts(), rank, 5) for rank in range(5)]
    numbers = [(each["LOCAL_RANK"], each["LOCAL_WORLD_SIZE"]) for each in found]
    assert numbers == [("0", "2"), ("0", "3"), ("1", "2"), ("1", "3"), ("2", "3")]


def test_variables_of_libtpu() -> None:
    def made(size: int, **environment: str) -> str:
        return processes.variables(environment, 1, size, "8476", ["a:1", "b:2"])["TPU_PROCESS_BOUNDS"]

    found = processes.variables({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, 1, 2, "8476", ["a:1", "b:2"])
    assert found == {
        "TPU_PROCESS_BOUNDS": "1,2,1",
        "TPU_CHIPS_PER_PROCESS_BOUNDS": "1,1,1",
        "TPU_PROCESS_ADDRESSES": "a:1,b:2",
        "TPU_PROCESS_PORT": "8476",
        "CLOUD_TPU_TASK_ID": "1",
        "TPU_VISIBLE_CHIPS": "1",
    }
    assert made(8) == "2,4,1"
    assert made(16, TPU_TOPOLOGY="4x4", LOCAL_WORLD_SIZE="4") == "4,4,1"
    assert made(32, TPU_PROCESS_BOUNDS="2,2,2", TPU_CHIPS_PER_PROCESS_BOUNDS="2,2,1") == "4,4,2"
    assert made(8, TPU_HOST_BOUNDS="1,1,2", TPU_CHIPS_PER_HOST_BOUNDS="2,2,1", LOCAL_WORLD_SIZE="4") == "2,2,2"
    with pytest.raises(RuntimeError, match="how the chips of 6 ranks are arranged is not known"):
        made(6)
    assert processes.own_process({"TPU_WORKER_ID": "2", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"}, 0) == 9
    assert processes.own_process({}, 5) == 5
