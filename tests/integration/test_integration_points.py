"""The points at which a device joins PyTorch, as torch_openreg, its reference backend, has tests for them.

Here is what no other file has; the others are:

    copies, pinned memory, several devices, streams, events, fork, memory     test_devices.py
    torch.tpu, modes, autoload, random state, memory statistics               test_torch_tpu_module.py
    storages, serialization, DLPack, `set_`, `resize_`                        test_serialization.py
    factories, views, printing, dtypes                                        test_tensors.py, test_views.py
    generators and seeds                                                      test_random.py
    autograd, hooks, threads                                                  test_autograd.py
    operators without a row, fallback to the CPU, errors                      test_errors.py
    autocast with models and a gradient scaler                                test_models.py, test_optimizers.py
    custom operators, autocast's lists, test templates                        test_device_generic.py
    torch.compile                                                             test_compile.py
"""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest
import torch

from tests.helpers import check, check_python

# ---- the name --------------------------------------------------------------------------------------------------


def test_the_name_is_taken() -> None:
    assert torch._C._get_privateuse1_backend_name() == "tpu"
    torch.utils.rename_privateuse1_backend("tpu")
    with pytest.raises(RuntimeError, match="has already been set"):
        torch.utils.rename_privateuse1_backend("other")
    with pytest.raises(RuntimeError, match="The runtime module of"):
        torch._register_device_module("tpu", types.ModuleType("other"))
    with pytest.raises(RuntimeError, match="The custom device module of"):
        torch.utils.generate_methods_for_privateuse1_backend()


def test_the_module_is_found_by_name() -> None:
    assert torch.get_device_module("tpu") is torch.tpu
    assert torch.get_device_module() is torch.tpu
    assert torch.utils.backend_registration._get_custom_mod_func("device_count")() == torch.tpu.device_count()
    with pytest.raises(RuntimeError, match=r"Try to call torch\.tpu"):
        torch.utils.backend_registration._get_custom_mod_func("no_such_function")


def test_generated_methods(device: torch.device) -> None:
    for owner in (torch.Tensor, torch.TypedStorage, torch.UntypedStorage, torch.nn.utils.rnn.PackedSequence):
        assert hasattr(owner, "is_tpu")
        assert hasattr(owner, "tpu")
    assert hasattr(torch.nn.Module, "tpu")
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3, 2), torch.ones(1, 2)])
    assert not packed.is_tpu
    moved = packed.tpu()
    assert moved.is_tpu
    assert moved.data.device.type == device.type
    assert torch.ones(2).tpu(0).device == torch.device("tpu", 0)


def test_type_strings(device: torch.device) -> None:
    for dtype, name in {
        torch.bool: "Bool",
        torch.float32: "Float",
        torch.int64: "Long",
        torch.bfloat16: "BFloat16",
    }.items():
        assert torch.empty(2, dtype=dtype, device=device).type() == f"torch.tpu.{name}Tensor"
    assert torch.ones(2).type("torch.tpu.FloatTensor").device.type == "tpu"
    assert torch.ones(2, device=device).storage().is_tpu


# ---- torch.accelerator -----------------------------------------------------------------------------------------


def test_accelerator_over_devices() -> None:
    code = """
import multiprocessing, torch
accelerator = torch.accelerator
assert accelerator.device_count() == 2
with accelerator.device_index(1):
    assert accelerator.current_device_index() == 1 and torch.ones(1, device="tpu").device.index == 1
    with accelerator.device_index(None):
        assert accelerator.current_device_index() == 1
try:
    with accelerator.device_index(1):
        raise ValueError
except ValueError:
    pass
assert accelerator.current_device_index() == 0
try:
    accelerator.set_device_index(2)
except RuntimeError as error:
    print(error)
accelerator.set_device_index(1)
accelerator.synchronize()
assert accelerator.current_device_index() == 1 and accelerator.current_stream().device == torch.device("tpu:1")
accelerator.set_device_index(0)

stream = torch.Stream("tpu:1")
assert stream.device == torch.device("tpu:1") and "device_type=tpu, device_index=1" in repr(stream)
same = torch.Stream(stream_id=stream.stream_id, device_type=stream.device_type, device_index=stream.device_index)
assert same == stream
with stream:
    assert accelerator.current_stream() == stream and accelerator.current_device_index() == 1
accelerator.set_stream(stream)
assert accelerator.current_stream() == stream
accelerator.set_stream(torch.Stream("tpu:0"))
torch.Stream("tpu:0").wait_stream(stream)

event = stream.record_event()
assert event.device == torch.device("tpu:1")
event.synchronize()
assert event.query()
torch.Stream("tpu:0").wait_event(event)
timed = [torch.Event("tpu:1", enable_timing=True) for _ in range(2)]
for each in timed:
    each.record(stream)
stream.synchronize()
assert timed[0].elapsed_time(timed[1]) >= 0
untimed = [torch.Event("tpu:1") for _ in range(2)]
for each in untimed:
    each.record(stream)
stream.synchronize()
try:
    untimed[0].elapsed_time(untimed[1])
except (RuntimeError, ValueError) as error:
    print(type(error).__name__)

assert [torch.Generator("tpu:1").device, torch.tpu.default_generators[1].device] == [torch.device("tpu:1")] * 2
states = torch.tpu.get_rng_state_all()
drawn = [torch.rand(3, device=f"tpu:{i}").tolist() for i in range(2)]
torch.tpu.set_rng_state_all(states)
assert [torch.rand(3, device=f"tpu:{i}").tolist() for i in range(2)] == drawn

assert torch.serialization.location_tag(torch.UntypedStorage(4, device="tpu:1")) == "tpu:1"
assert torch.serialization.default_restore_location(torch.ones(4).storage(), "tpu:1").device == torch.device("tpu:1")
"""
    refused, kind = check_python(code, TORCHTPU_NUM_DEVICES="2").splitlines()
    assert "2" in refused
    assert kind == "ValueError"


def test_capability(device: torch.device) -> None:
    supported = torch.accelerator.get_device_capability(device)["supported_dtypes"]
    assert {torch.float32, torch.bfloat16, torch.int64, torch.bool} <= supported
    for dtype in supported:
        assert torch.zeros(2, dtype=dtype, device=device).dtype == dtype


def test_accelerator_memory(device: torch.device) -> None:
    before = torch.accelerator.memory_allocated()
    held = torch.zeros(1000, device=device)
    assert torch.accelerator.memory_allocated() == before + 4000
    assert torch.accelerator.max_memory_allocated() >= before + 4000
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.empty_cache()
    assert torch.accelerator.memory_stats()["allocated_bytes.all.current"] == before + held.nbytes
    free, total = torch.accelerator.get_memory_info()
    assert 0 < free <= total


def test_spawned_processes_have_the_device(tmp_path: Path) -> None:
    # A spawned process imports the file of its function.
    script = tmp_path / "script.py"
    script.write_text("""
import torch, torch.multiprocessing
def work(index):
    print(index, torch.ones(2, device="tpu").sum().item(), flush=True)
if __name__ == "__main__":
    torch.ones(1, device="tpu")
    torch.multiprocessing.start_processes(work, args=(), nprocs=1, start_method="spawn")
""")
    finished = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=240)
    assert finished.stdout == "0 2.0\n", finished.stderr


# ---- autocast --------------------------------------------------------------------------------------------------


def test_autocast_state() -> None:
    assert torch.amp.is_autocast_available("tpu")
    assert not torch.is_autocast_enabled("tpu")
    assert torch.get_autocast_dtype("tpu") in torch.tpu.get_amp_supported_dtype()
    with torch.autocast("tpu", dtype=torch.float16):
        assert torch.is_autocast_enabled("tpu")
        assert torch.get_autocast_dtype("tpu") == torch.float16
        with torch.autocast("tpu", enabled=False):
            assert not torch.is_autocast_enabled("tpu")
    assert not torch.is_autocast_enabled("tpu")


def test_autocast_refuses_other_dtypes(device: torch.device) -> None:
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        context = torch.autocast("tpu", dtype=torch.float64)
    with context:
        assert not torch.is_autocast_enabled("tpu")
        assert (torch.ones(2, 2, device=device) @ torch.ones(2, 2, device=device)).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_casts(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    x, low = torch.ones(2, 2, device=device), torch.ones(2, device=device, dtype=dtype)
    with torch.autocast("tpu", dtype=dtype):
        assert (x @ x).dtype == dtype
        assert low.exp().dtype == torch.float32
        assert (low + 1).dtype == dtype
        assert torch.cat([low, x[0]]).dtype == torch.float32
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            torch.nn.functional.binary_cross_entropy(x, x)


# ---- storages --------------------------------------------------------------------------------------------------


def test_storages(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> list[torch.Tensor]:
        x = torch.arange(6, dtype=torch.uint8).to(on)
        storage = x.untyped_storage()
        assert storage.device == x.device
        assert len(storage) == storage.nbytes() == 6
        filled = x.clone()
        filled.untyped_storage().fill_(7)
        copied = torch.zeros(6, dtype=torch.uint8, device=on)
        copied.untyped_storage().copy_(storage)
        cloned = torch.empty(0, dtype=torch.uint8, device=on).set_(storage.clone())
        storage.resize_(12)
        longer = torch.empty(0, dtype=torch.uint8, device=on).set_(storage)
        return [filled, copied, cloned, longer[:6]]

    check(program, device)


def test_storages_move(device: torch.device) -> None:
    storage = torch.arange(4.0).untyped_storage()
    moved = storage.to(device="tpu")
    assert moved.is_tpu
    assert moved.cpu().tolist() == storage.tolist() == moved.tolist()
    assert storage.tpu().device == torch.device("tpu", 0)


def test_pinned_storages() -> None:
    pinned = torch.arange(10.0).pin_memory()
    assert pinned.is_pinned()
    assert pinned[2:5].is_pinned()
    again = torch.tensor(()).set_(pinned.untyped_storage()[8:], size=(5,), stride=(1,), storage_offset=0)
    assert again.is_pinned()
    for storage in (torch.ones(4).storage(), torch.ones(4).untyped_storage()):
        assert not storage.is_pinned("tpu")
        assert storage.pin_memory("tpu").is_pinned("tpu")


# ---- what else PyTorch keeps with a tensor ---------------------------------------------------------------------


def test_fake_tensors(device: torch.device) -> None:
    with torch._subclasses.fake_tensor.FakeTensorMode() as fake:
        total = torch.empty(3, 3, device="tpu") + torch.empty(3, 3, device="tpu:0")
        assert total.device == torch.device("tpu", 0)
        assert total.shape == (3, 3)
    assert fake.from_tensor(torch.ones(2, device=device)).device == torch.device("tpu", 0)


def test_data_of_another_device(device: torch.device) -> None:
    x = torch.ones(2, 2)
    x.data = torch.zeros(2, 2, device=device)
    assert x.is_tpu
    assert x.tolist() == [[0, 0], [0, 0]]


def test_convolutions_for_backends_of_their_own(device: torch.device, mode: str) -> None:
    """PyTorch calls these if a convolution is called below the selection of a backend."""

    def program(on: torch.device) -> list[torch.Tensor]:
        x = torch.arange(32.0).reshape(1, 2, 4, 4).to(on).requires_grad_()
        weight = (torch.arange(36.0).reshape(2, 2, 3, 3) / 36).to(on).requires_grad_()
        y = torch._convolution(x, weight, None, (1, 1), (1, 1), (1, 1), False, (0, 0), 1, False, True, True)
        y.square().sum().backward()
        return [y, x.grad, weight.grad]

    check(program, device)
