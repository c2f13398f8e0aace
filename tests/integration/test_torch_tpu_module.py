"""`torch.tpu`: the functions that users of `torch.cuda` expect."""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.helpers import check_python, check_started_python

# ---- import ----------------------------------------------------------------------------------------------------


def test_import_order_does_not_matter() -> None:
    check_python("import torchtpu, torch; assert torch.tpu is torchtpu.tpu")
    check_python("import torch, torchtpu; assert torch.tpu is torchtpu.tpu")


def test_import_loads_no_heavy_module() -> None:
    code = """
import sys, torch
before = set(sys.modules)
import torchtpu
heavy = ("torch._dynamo", "torch._inductor", "torch.fx.experimental", "sympy", "jax", "numpy")
print([name for name in set(sys.modules) - before if name.startswith(heavy)])
"""
    assert check_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "[]\n"


def test_operators_do_not_import_dynamo() -> None:
    """PyTorch's references give the sizes of these operators, and import Dynamo where they are called by themselves."""
    code = """
import sys, torch
x = torch.randn(2, 4, device="tpu").relu()
print(torch.nn.functional.layer_norm(x, (4,)).abs().shape, torch.isfinite(x).all())
print("torch._dynamo" in sys.modules)
compiled = torch.compile(lambda x: x.relu() + 1)
print((compiled(x) == x.relu() + 1).all().item())
from torchtpu.operators import references
print(any(getattr(function, "__dynamo_disable", None) is function for function in references._decorated()))
print(torch.ones(2, device="meta").abs().shape)
"""
    printed = "torch.Size([2, 4]) tensor(True, device='tpu:0')\nFalse\nTrue\nFalse\ntorch.Size([2])\n"
    assert check_started_python(code) == printed


@pytest.mark.slow
def test_import_is_fast() -> None:
    def seconds(autoload: str) -> float:
        code = "import time; start = time.process_time(); import torch; print(time.process_time() - start)"
        return min(float(check_started_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload)) for _ in range(5))

    assert seconds("1") - seconds("0") < 0.3


def test_torchax_in_the_same_process_is_refused() -> None:
    code = """
import sys, types
sys.modules["torchax"] = types.ModuleType("torchax")
try:
    import torchtpu
except ImportError as error:
    print(error)
"""
    assert "torchax is already imported" in check_python(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0")


# ---- devices ---------------------------------------------------------------------------------------------------


def test_device_queries() -> None:
    assert torch.tpu.is_available()
    assert torch.tpu.device_count() >= 1
    assert torch.tpu.current_device() == 0
    assert isinstance(torch.tpu.get_device_name(), str)
    properties = torch.tpu.get_device_properties("tpu:0")
    assert properties.name == torch.tpu.get_device_name(0)
    assert properties.total_memory > 0
    assert properties.multi_processor_count >= 1


def test_accelerator_is_this_device() -> None:
    assert torch.accelerator.is_available()
    accelerator = torch.accelerator.current_accelerator()
    assert accelerator is not None
    assert accelerator.type == "tpu"
    assert torch.accelerator.device_count() == torch.tpu.device_count()
    assert torch.accelerator.current_device_index() == torch.tpu.current_device()
    torch.accelerator.synchronize()


def test_several_devices() -> None:
    code = """
import torch
assert torch.tpu.device_count() == 2
with torch.tpu.device(1):
    assert torch.tpu.current_device() == 1
    x = torch.ones(3, device="tpu")
assert x.device == torch.device("tpu:1") and torch.tpu.current_device() == 0
with torch.tpu.device_of(x):
    assert torch.tpu.current_device() == 1
with torch.tpu.device(None):
    assert torch.tpu.current_device() == 0
y = x.to("tpu:0") + 1
assert y.device == torch.device("tpu:0") and y.tolist() == [2, 2, 2]
assert torch.tpu._exchange_device(1) == 0 and torch.tpu._exchange_device(-1) == -1
torch.tpu.set_device("tpu:0")
torch.tpu.synchronize("tpu:1")
torch.tpu.manual_seed_all(5)
assert [g.initial_seed() for g in torch.tpu.default_generators] == [5, 5]
"""
    check_python(code, TORCHTPU_NUM_DEVICES="2")


@pytest.mark.parametrize("wrong", ["cpu", torch.device("cpu"), "cuda:0"])
def test_other_devices_are_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="Expected a tpu device"):
        torch.tpu.synchronize(wrong)


def test_device_index_out_of_range() -> None:
    with pytest.raises((RuntimeError, IndexError)):
        torch.tpu.set_device(99)
    assert torch.tpu.current_device() == 0


def test_generated_methods(device: torch.device) -> None:
    x = torch.ones(2)
    assert not x.is_tpu
    assert x.tpu().is_tpu
    assert x.tpu().device == torch.device("tpu", 0)
    assert next(torch.nn.Linear(2, 2).tpu().parameters()).is_tpu


# ---- modes -----------------------------------------------------------------------------------------------------


def test_mode_reads_and_assigns() -> None:
    modes = torch.tpu.EagerMode
    for mode in (modes.FUSED, modes.DEBUG, modes.STRICT):
        torch.tpu.eager_mode = mode
        assert torch.tpu.eager_mode is mode
        torch.tpu.eager_mode = mode.name.lower()
        assert torch.tpu.eager_mode is mode


def test_mode_aliases() -> None:
    modes = torch.tpu.EagerMode
    assert modes.DEFER_NEVER_AND_LAUNCH_BLOCKING is modes.DEBUG
    assert modes.DEFER_NEVER is modes.STRICT
    assert modes.DEFER_AND_FUSE is modes.FUSED


def test_mode_as_context_manager() -> None:
    torch.tpu.set_eager_mode("strict")
    with torch.tpu.set_eager_mode("debug", check_finite=True):
        assert torch.tpu.eager_mode is torch.tpu.EagerMode.DEBUG
        with torch.tpu.set_eager_mode(torch.tpu.EagerMode.FUSED):
            assert torch.tpu.eager_mode is torch.tpu.EagerMode.FUSED
        assert torch.tpu.eager_mode is torch.tpu.EagerMode.DEBUG
    assert torch.tpu.eager_mode is torch.tpu.EagerMode.STRICT


def test_mode_from_the_environment() -> None:
    # It is read at import.
    printed = check_started_python("import torch; print(torch.tpu.eager_mode.name)", TORCHTPU_EAGER_MODE="fused")
    assert printed == "FUSED\n"


@pytest.mark.parametrize("wrong", ["eager", "", None, 1])
def test_unknown_mode_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="eager mode must be"):
        torch.tpu.eager_mode = wrong


def test_finite_check_needs_debug() -> None:
    with pytest.raises(ValueError, match="check_finite needs the debug mode"):
        torch.tpu.set_eager_mode("fused", check_finite=True)


def test_finite_check_names_operator_and_line(device: torch.device) -> None:
    x = torch.zeros(3, device=device)
    with torch.tpu.set_eager_mode("debug", check_finite=True):
        with pytest.raises(RuntimeError, match=r"log") as raised:
            x.log()
        assert os.path.basename(__file__) in str(raised.value)
    assert x.log().isinf().all()


# ---- random numbers --------------------------------------------------------------------------------------------


def test_seed_repeats(device: torch.device, mode: str) -> None:
    def draw() -> list[float]:
        return torch.rand(4, device=device).tolist()

    torch.tpu.manual_seed(7)
    first = draw()
    assert torch.tpu.initial_seed() == 7
    assert draw() != first
    torch.manual_seed(7)
    assert draw() == first


def test_seed_before_the_first_use_is_kept() -> None:
    code = "import torch; torch.manual_seed(7); print(torch.rand(4, device='tpu').tolist())"
    once = check_python(code)
    assert once == check_python(code)
    assert once == check_python(code.replace("manual_seed(7);", "manual_seed(7); torch.tpu.init();"))


def test_random_state_is_saved_and_restored(device: torch.device, mode: str) -> None:
    state = torch.tpu.get_rng_state()
    assert state.dtype == torch.uint8
    assert state.device.type == "cpu"
    first = torch.rand(4, device=device).tolist()
    torch.tpu.set_rng_state(state)
    assert torch.rand(4, device=device).tolist() == first
    torch.tpu.set_rng_state_all(torch.tpu.get_rng_state_all())


def test_fork_rng(device: torch.device) -> None:
    for fork in (torch.tpu.fork_rng, lambda: torch.random.fork_rng(device_type="tpu")):
        torch.manual_seed(3)
        with fork():
            inside = torch.rand(4, device=device).tolist()
            on_host = torch.rand(4).tolist()
        assert torch.rand(4, device=device).tolist() == inside
        assert torch.rand(4).tolist() == on_host


def test_seed_from_the_system(device: torch.device) -> None:
    assert torch.tpu.seed() == torch.tpu.initial_seed()
    torch.tpu.seed_all()
    assert len({generator.initial_seed() for generator in torch.tpu.default_generators}) == 1


# ---- memory ----------------------------------------------------------------------------------------------------


def test_memory_counts_live_tensors(device: torch.device) -> None:
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    x = torch.ones(1024, 256, device=device)
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() - before == 1 << 20
    assert torch.tpu.max_memory_allocated() >= torch.tpu.memory_allocated()
    assert torch.tpu.memory_reserved() >= torch.tpu.memory_allocated()
    assert torch.tpu.max_memory_reserved() >= torch.tpu.memory_reserved()
    del x
    torch.tpu.synchronize()
    assert torch.tpu.memory_allocated() == before
    assert torch.tpu.max_memory_allocated() > before
    torch.tpu.reset_peak_memory_stats()
    assert torch.tpu.max_memory_allocated() == before
    torch.tpu.empty_cache()


def test_memory_stats_have_the_keys_of_cuda(device: torch.device) -> None:
    stats = torch.tpu.memory_stats(device)
    for key in (
        "active_bytes.all.peak",
        "allocated_bytes.all.current",
        "allocated_bytes.all.allocated",
        "reserved_bytes.all.peak",
        "num_alloc_retries",
        "num_ooms",
    ):
        assert isinstance(stats[key], int)
    assert stats["allocated_bytes.all.current"] == torch.tpu.memory_allocated()


@pytest.mark.parametrize("module", [torch.tpu, torch.accelerator], ids=["tpu", "accelerator"])
def test_memory_totals_start_again_at_a_reset(device: torch.device, module: ModuleType) -> None:
    kept = torch.ones(64, device=device)
    torch.tpu.synchronize()
    module.reset_accumulated_memory_stats()
    x = torch.ones(256, device=device)
    stats = module.memory_stats()
    assert (stats["allocated_bytes.all.allocated"], stats["allocated_bytes.all.freed"]) == (1024, 0)
    assert (stats["allocation.all.allocated"], stats["allocation.all.freed"]) == (1, 0)
    del x, kept
    torch.tpu.synchronize()
    stats = module.memory_stats()
    assert (stats["allocated_bytes.all.allocated"], stats["allocated_bytes.all.freed"]) == (1024, 1280)
    assert (stats["allocation.all.allocated"], stats["allocation.all.freed"]) == (1, 2)


def test_memory_summary_and_info() -> None:
    assert "tpu:0" in torch.tpu.memory_summary()
    assert "in total" not in torch.tpu.memory_summary(abbreviated=True)
    free, total = torch.tpu.mem_get_info()
    assert 0 < free <= total


# ---- streams and events ----------------------------------------------------------------------------------------


def test_streams_are_one_queue(device: torch.device) -> None:
    stream = torch.tpu.Stream()
    assert isinstance(stream, torch.Stream)
    assert stream.device == torch.device("tpu", 0)
    before = torch.tpu.current_stream()
    x = torch.ones(4, device=device)
    with torch.tpu.stream(stream):
        assert torch.tpu.current_stream() == stream
        y = x + 1
    assert torch.tpu.current_stream() == before
    torch.tpu.current_stream().wait_stream(stream)
    assert y.sum().item() == 8
    stream.synchronize()
    assert stream.query()
    with torch.tpu.stream(None):
        assert torch.tpu.current_stream() == before
    assert torch.tpu.default_stream().device == torch.device("tpu", 0)


def test_events_time_work(device: torch.device, mode: str) -> None:
    start = torch.tpu.Event(enable_timing=True)
    end = torch.tpu.Event(enable_timing=True)
    x = torch.rand(256, 256, device=device)
    start.record()
    for _ in range(4):
        x = x @ x
    end.record()
    end.wait()
    end.synchronize()
    assert start.query()
    assert end.query()
    assert start.elapsed_time(end) >= 0


# ---- dtypes and counters ---------------------------------------------------------------------------------------


def test_supported_dtypes() -> None:
    assert torch.bfloat16 in torch.tpu.get_amp_supported_dtype()
    assert torch.tpu.is_bf16_supported()


def test_compiled_programs_are_counted(device: torch.device) -> None:
    x = torch.rand(13, 17, device=device)
    torch.tpu.reset_cache_stats()
    for _ in range(3):
        x = x * 2
    torch.tpu.synchronize()
    stats = torch.tpu.cache_stats()
    assert stats["requests"] >= stats["hits"] + stats["compiles"] - 1
    assert stats["hits"] >= 2
    assert stats["compile_seconds"] >= 0


def test_operators_are_counted(device: torch.device) -> None:
    x = torch.rand(5, device=device)
    torch.tpu.reset_op_stats()
    (x + 1).sum().item()
    stats = torch.tpu.op_stats()
    assert stats["operators"] >= 2
    assert stats["fallen_back"] == {}


# ---- forked processes ------------------------------------------------------------------------------------------


def test_forked_child_gets_an_error(device: torch.device) -> None:
    code = """
import os, sys, torch
torch.ones(2, device="tpu")
child = os.fork()
if child == 0:
    try:
        torch.ones(2, device="tpu").sum().item()
    except RuntimeError as error:
        os._exit(0 if "spawn" in str(error) and torch.tpu._is_in_bad_fork() else 3)
    os._exit(4)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0, status
assert torch.ones(2, device="tpu").sum().item() == 2
"""
    check_python(code)


def test_data_loader_workers_may_fork(device: torch.device) -> None:
    torch.ones(1, device=device)
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    loader = torch.utils.data.DataLoader(data, batch_size=4, num_workers=1)
    assert sum(batch.to(device).sum().item() for (batch,) in loader) == 28
