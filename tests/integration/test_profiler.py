"""torch.profiler: its events of the host, and of the programs that the device runs."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

ACTIVITIES = [ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]


def test_profiler(device: torch.device, mode: str, tmp_path: Path) -> None:
    activity = torch.profiler.ProfilerActivity
    model = torch.nn.Linear(4, 2).to(device)
    with torch.profiler.profile(activities=[activity.CPU, activity.PrivateUse1], record_shapes=True) as profile:
        for number in range(2):
            with torch.profiler.record_function(f"step {number}"):
                model(torch.ones(3, 4, device=device)).sum().backward()
            torch.tpu.synchronize()
            profile.step()
    names = {event.name for event in profile.events()}
    assert {"step 0", "step 1", "aten::linear", "aten::sum", "AddmmBackward0"} <= names
    assert "aten::linear" in profile.key_averages(group_by_input_shape=True).table(sort_by="cpu_time_total")
    profile.export_chrome_trace(str(tmp_path / "trace.json"))
    traced = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert any(event.get("name") == "step 1" for event in traced)


def test_memory_of_the_device(device: torch.device) -> None:
    """The profiler is told of each storage that is made or released, and of its size."""
    x = torch.ones(1024, device=device)
    with profile(profile_memory=True, record_shapes=True, with_stack=True) as profiled:
        del x
        y = torch.ones(64, device=device) + 1
        y.resize_(512)
        del y
    events = [
        (each.nbytes(), each.device_type())
        for each in profiled.profiler.kineto_results.events()
        if each.name() == "[memory]"
    ]
    sizes = [size for size, where in events if where == torch.autograd.DeviceType.PrivateUse1]
    assert sizes[0] == -4096
    assert sorted(sizes[1:]) == sorted([256, -256, 256, -256, 2048, -2048])
    timeline = [(action.name, size) for _, action, (_, version), size in profiled._memory_profile().timeline]
    assert {("PREEXISTING", 4096), ("DESTROY", 4096), ("CREATE", 2048), ("DESTROY", 2048)} <= set(timeline)


def test_autograd_profiler(device: torch.device) -> None:
    with torch.autograd.profiler.profile(use_device="tpu") as profile, torch.autograd.profiler.record_function("mine"):
        x = torch.ones(3, device=device, requires_grad=True)
        (x * 2).sum().backward()
        with torch.Stream(device):
            x + 1
    assert {"mine", "aten::mul", "MulBackward0"} <= {event.name for event in profile.function_events}


def test_profiler_after_an_error(device: torch.device) -> None:
    with pytest.raises(RuntimeError), torch.profiler.profile() as profile:
        torch.ones(2, 3, device=device) @ torch.ones(2, 3, device=device)
    assert any(event.name == "aten::matmul" for event in profile.events())


# ---- the device ------------------------------------------------------------------------------------------------


def _training(device: torch.device, size: int) -> Callable[[], None]:
    """A training step that keeps the device busy for some time."""
    layers = [torch.nn.Linear(size, size), torch.nn.ReLU(), torch.nn.Linear(size, size)]
    model = torch.nn.Sequential(*layers).to(device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    x = torch.randn(size, size, device=device)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        torch.tpu.synchronize()

    return step


def _trace(profiled: profile, folder: Path) -> list[dict[str, Any]]:
    path = folder / "trace.json"
    profiled.export_chrome_trace(str(path))
    return json.loads(path.read_text())["traceEvents"]


def _runs(trace: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted((event for event in trace if event.get("cat") == "kernel"), key=lambda event: event["ts"])


def test_rows_of_the_device_follow_the_steps(device: torch.device, mode: str, tmp_path: Path) -> None:
    step = _training(device, 512)
    for _ in range(3):
        step()
    with profile(activities=ACTIVITIES) as profiled:
        for _ in range(3):
            with record_function("a step"):
                step()
    trace = _trace(profiled, tmp_path)
    runs = _runs(trace)
    steps = [event for event in trace if event.get("name") == "a step" and event.get("cat") != "kernel"]
    assert len(steps) == 3
    for one, next_one in itertools.pairwise(runs):
        assert one["ts"] + one["dur"] <= next_one["ts"] + 0.01  # a device runs one program at a time
    assert len(runs) >= 3
    assert runs[0]["ts"] >= steps[0]["ts"] - 0.01
    # A busy machine may record the end of a program late, so the test does not ask for the share of the step.
    assert all(run["dur"] >= 0 for run in runs)
    assert sum(run["dur"] for run in runs) > 0


def test_programs_belong_to_operators(device: torch.device, tmp_path: Path) -> None:
    x, y = torch.ones(64, 32, device=device), torch.ones(32, 16, device=device)
    with torch.tpu.set_eager_mode("strict"):
        x @ y
        with profile(activities=ACTIVITIES) as profiled:
            with record_function("outer"):
                x @ y
            torch.tpu.synchronize()
    averages = {event.key: event for event in profiled.key_averages()}
    assert averages["aten::mm"].device_time_total == averages["mm"].self_device_time_total > 0
    assert averages["aten::mm"].self_device_time_total == averages["aten::matmul"].device_time_total
    assert averages["outer"].device_time_total == averages["mm"].self_device_time_total
    assert "Self TPU" in profiled.key_averages().table(sort_by="self_device_time_total")
    (kernel,) = (event for event in profiled.events() if event.name == "mm")
    assert kernel.device_type == torch.autograd.DeviceType.PrivateUse1
    trace = _trace(profiled, tmp_path)
    (run,) = _runs(trace)
    assert run["name"] == "mm"
    assert run["args"]["flops"] >= 2 * 64 * 32 * 16
    assert run["args"]["bytes accessed"] >= 4 * (64 * 32 + 32 * 16 + 64 * 16)
    (operator,) = (event for event in trace if event.get("name") == "aten::mm")
    assert run["args"]["External id"] == operator["args"]["External id"]
    assert {"tpu:0"} <= {event["args"].get("name") for event in trace if event.get("ph") == "M"}


def test_the_table_counts_device_time_once(device: torch.device) -> None:
    """As with CUDA, an average of the host and one of the device both have the time of a run. The table's total has
    that of the device's averages."""
    x = torch.ones(64, 64, device=device)
    with torch.tpu.set_eager_mode("strict"), profile(activities=ACTIVITIES) as profiled:
        (x @ x).relu()
        torch.tpu.synchronize()
    averages = profiled.key_averages()
    on_device = [each for each in averages if each.device_type == torch.autograd.DeviceType.PrivateUse1]
    runs = [each for each in profiled.events() if each.device_type == torch.autograd.DeviceType.PrivateUse1]
    assert len(runs) == 2
    total = sum(each.self_device_time_total for each in on_device)
    assert total == pytest.approx(sum(run.time_range.elapsed_us() for run in runs))
    of_operators = sum(each.self_device_time_total for each in averages if each not in on_device)
    assert of_operators == pytest.approx(total)
    line = next(line for line in profiled.key_averages().table().splitlines() if "time total" in line and "TPU" in line)
    number, unit = re.fullmatch(r"Self TPU time total: ([0-9.]+)(us|ms|s)", line.strip()).groups()
    assert float(number) * {"us": 1, "ms": 1e3, "s": 1e6}[unit] == pytest.approx(total, rel=1e-2)


def test_a_fused_program_belongs_to_what_reads_it(device: torch.device, tmp_path: Path) -> None:
    x = torch.ones(8, device=device)
    with torch.tpu.set_eager_mode("fused"), profile(activities=ACTIVITIES) as profiled:
        assert ((x + 1) * 2 + 3).sum().item() == 56
    (run,) = _runs(_trace(profiled, tmp_path))
    assert run["name"] == "add.Tensor, mul.Tensor, add.Tensor and 1 more operators"
    assert run["args"]["operators"] == "add.Tensor x 2, mul.Tensor, sum"
    averages = {event.key: event for event in profiled.key_averages()}
    assert averages["aten::item"].device_time_total > 0
    assert averages["aten::mul"].device_time_total == 0


def test_compiled_graphs_are_named(device: torch.device) -> None:
    compiled = torch.compile(lambda x: torch.sin(x) + 1)
    x = torch.ones(8, device=device)
    compiled(x)
    with profile(activities=ACTIVITIES) as profiled:
        compiled(x)
        torch.tpu.synchronize()
    runs = [event for event in profiled.events() if event.device_type == torch.autograd.DeviceType.PrivateUse1]
    assert [run.name.split()[0] for run in runs] == ["compiled"]


def test_a_schedule_of_profiles(device: torch.device, mode: str) -> None:
    x = torch.ones(16, device=device)
    counts = []

    def count(profiled: profile) -> None:
        counts.append(sum(event.device_type == torch.autograd.DeviceType.PrivateUse1 for event in profiled.events()))

    schedule = torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(activities=ACTIVITIES, schedule=schedule, on_trace_ready=count) as profiled:
        for _ in range(8):
            torch.cos(x)
            y = torch.sin(x)
            torch.tpu.synchronize()
            profiled.step()
    assert y[0].item() == pytest.approx(0.841471)
    # Fused does not compute the unreferenced cosine.
    assert counts == ([2, 2] if mode == "fused" else [4, 4])


def test_a_profile_of_the_host_alone(device: torch.device) -> None:
    with profile(activities=[ProfilerActivity.CPU]) as profiled:
        torch.ones(4, device=device) + 1
    assert all(event.device_type == torch.autograd.DeviceType.CPU for event in profiled.events())
