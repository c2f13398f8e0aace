"""Copies to and from devices, several devices, streams and events, memory figures, forked processes."""

from __future__ import annotations

import gc

import pytest
import torch

from tests.helpers import check, check_python

# ---- between host and device -----------------------------------------------------------------------------------


def test_copies(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        host = torch.arange(12.0).reshape(3, 4)
        x = torch.zeros(3, 4, device=device)
        x.copy_(host)
        x[1:].copy_(host[:2])  # into a part
        x.t()[0].copy_(torch.tensor([9, 8, 7]))  # of another dtype, into a column
        back = torch.zeros(4, 3)
        back.copy_(x.t())
        part = torch.zeros(3, 8)
        part[:, ::2].copy_(x)
        wide = torch.zeros(2, 3, 4, dtype=torch.float64)
        wide.copy_(x)  # broadcasts and converts
        y = torch.zeros(2, 3, 4, device=device).copy_(host[0])
        transposed = host.t().to(device, copy=True)
        parts = [host.expand(2, 3, 4).to(device, copy=True), host[:, 1:3].to(device, copy=True)]
        return x, back, part, wide, y, transposed, parts

    check(program, device)


def test_a_copy_is_a_copy(device: torch.device, mode: str) -> None:
    host = torch.zeros(1000)
    x = host.to(device)
    host.fill_(1)  # the copy has been made
    assert x.sum().item() == 0
    back = x.cpu()
    x.fill_(2)
    assert back.sum().item() == 0
    assert x.to(device) is x
    assert x.to("tpu") is x
    assert x.to("tpu", copy=True) is not x


def test_pinned_memory(device: torch.device, mode: str) -> None:
    host = torch.arange(256.0).pin_memory()
    assert host.is_pinned()
    assert not torch.ones(2).is_pinned()
    assert host[3:].is_pinned()
    x = host.to(device, non_blocking=True)
    y = x * 2
    torch.tpu.synchronize()
    host.fill_(-1)  # allowed now
    assert torch.equal(y.cpu(), torch.arange(256.0) * 2)
    assert torch.equal(x.cpu(), torch.arange(256.0))
    back = torch.empty(256).pin_memory()
    back.copy_(y, non_blocking=True)
    torch.tpu.synchronize()
    assert torch.equal(back, torch.arange(256.0) * 2)
    assert torch.empty(3, pin_memory=True).is_pinned()
    with pytest.raises(RuntimeError, match="Only dense CPU tensors can be pinned"):
        torch.empty(3, device=device, pin_memory=True)
    # Ordinary memory may be reused at once, even with non_blocking.
    ordinary = torch.ones(1 << 16)
    z = ordinary.to(device, non_blocking=True)
    ordinary.zero_()
    assert z.sum().item() == 1 << 16


def test_pinned_memory_outlives_its_tensor(device: torch.device) -> None:
    copies = []
    for i in range(20):
        host = torch.full((4096,), float(i)).pin_memory()
        copies.append(host.to(device, non_blocking=True))
        del host
    assert [x.sum().item() for x in copies] == [4096.0 * i for i in range(20)]


def test_data_loader_pins(device: torch.device) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    total = 0.0
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert batch.is_pinned()
        total += batch.to(device, non_blocking=True).sum().item()
    assert total == 28


# ---- several devices -------------------------------------------------------------------------------------------


def test_three_devices() -> None:
    code = """
import pickle, io, threading, torch
assert torch.tpu.device_count() == 3
x = torch.arange(6.0).reshape(2, 3)
on = [x.to(f"tpu:{i}") for i in range(3)]
assert [t.device.index for t in on] == [0, 1, 2]
for mode in ("debug", "strict", "fused"):
    torch.tpu.set_eager_mode(mode)
    # copies between devices: whole, of views, into views, with another dtype
    assert torch.equal(((on[1] + 1).to("tpu:2") * 2).cpu(), (x + 1) * 2)
    assert torch.equal(on[2].t()[1:].to("tpu:0").cpu(), x.t()[1:])
    y = torch.zeros(3, 3, device="tpu:1")
    y[:2].copy_(on[2]); y[2].copy_(on[0][1]); y.t()[0].copy_(torch.tensor([7, 8, 9], device="tpu:2"))
    assert y.tolist() == [[7, 1, 2], [8, 4, 5], [9, 4, 5]], y
    assert on[0].to("tpu:1", torch.int64).dtype == torch.int64
    z = on[0].to("tpu:1"); on[0].add_(1); on[0].sub_(1)
    assert torch.equal(z.cpu(), x)
    # results live where their operands are, whatever the current device
    with torch.tpu.device(2):
        assert (on[1] * 2).device.index == 1
        assert torch.ones(1, device="tpu").device.index == 2
        assert torch.rand(2, device="tpu:1").device.index == 1
        assert torch.ones_like(on[0]).device.index == 0
        assert on[1].t().contiguous().device.index == 1
        assert on[0].new_zeros(1).device.index == 0
        assert torch.zeros(1).tpu().device.index == 2
    assert torch.tpu.current_device() == 0
    # mixing is refused
    for wrong in (lambda: on[0] + on[1], lambda: torch.cat(on), lambda: on[0].add_(on[2]), lambda: on[0] @ on[1].t(),
                  lambda: torch.add(on[0], 1, out=on[1].clone())):
        try:
            wrong()
        except RuntimeError as error:
            assert "same device" in str(error) or "device" in str(error), error
        else:
            raise AssertionError("mixed")
    assert [t.sum().item() for t in on] == [15, 15, 15]
    assert (on[1] + torch.tensor(1, device="cpu")).device.index == 1
# autograd over devices
a, b = (torch.ones(3, device=f"tpu:{i}", requires_grad=True) for i in (1, 2))
((a * 2).to("tpu:2") * b).sum().to("tpu:0").backward()
assert a.grad.device.index == 1 and b.grad.device.index == 2 and a.grad.tolist() == b.grad.tolist()[:0] + [2, 2, 2]
# the current device belongs to the thread
seen = []
def work():
    seen.append(torch.tpu.current_device()); torch.tpu.set_device(1)
    seen.append(torch.ones(1, device="tpu").device.index)
thread = threading.Thread(target=work); thread.start(); thread.join()
assert seen == [0, 1] and torch.tpu.current_device() == 0
# memory is counted per device
before = [torch.tpu.memory_allocated(i) for i in range(3)]
held = torch.zeros(1000, device="tpu:1")
assert [torch.tpu.memory_allocated(i) - before[i] for i in range(3)] == [0, 4000, 0]
# serialized tensors return to their device, or to another one
file = io.BytesIO(); torch.save(on[1], file)
for location, index in ((None, 1), ("tpu:2", 2), ({"tpu:1": "tpu:0"}, 0)):
    file.seek(0)
    assert torch.load(file, map_location=location).device.index == index
# printing and peers
assert "device='tpu:2'" in repr(on[2])
# streams belong to a device
stream = torch.tpu.Stream("tpu:1")
with torch.tpu.stream(stream):
    assert torch.tpu.current_device() == 1 and torch.ones(1, device="tpu").device.index == 1
assert torch.tpu.current_device() == 0
# what is not there
for wrong in (lambda: torch.ones(1, device="tpu:3"), lambda: on[0].to("tpu:7"), lambda: torch.tpu.set_device(3)):
    try:
        wrong()
    except (RuntimeError, IndexError) as error:
        assert "3" in str(error), error
    else:
        raise AssertionError("no such device")
# a module in two parts
class Two(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4).to("tpu:1"), torch.nn.Linear(4, 2).to("tpu:2")
    def forward(self, x):
        return self.second(self.first(x.to("tpu:1")).relu().to("tpu:2"))
model = Two(); model(x).sum().backward()
assert model.first.weight.grad.device.index == 1
optimizer = torch.optim.SGD(model.parameters(), lr=0.1); optimizer.step()
print("done")
"""
    assert check_python(code, TORCHTPU_NUM_DEVICES="3") == "done\n"


# ---- streams and events ----------------------------------------------------------------------------------------


def test_generic_streams_and_events(device: torch.device, mode: str) -> None:
    stream = torch.Stream(device)
    event = torch.Event(device)
    x = torch.ones(64, 64, device=device)
    with stream:
        for _ in range(3):
            x = x @ x * 0.01
        stream.record_event(event)
    torch.accelerator.current_stream().wait_event(event)
    event.synchronize()
    assert event.query()
    assert stream.query()
    torch.accelerator.synchronize()
    assert x.isfinite().all().item()
    x.record_stream(stream)


def test_an_event_without_timing_does_not_end_a_program(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("fused"), torch.tpu.explain() as explanation:
        x = torch.ones(64, 64, device=device)
        torch.tpu.synchronize()
        y = x + 1
        event = torch.Event(device)
        event.record()
        z = y @ y
        event.synchronize()
        # The event stands for the program that the operators before it became a part of.
        assert event.query()
        timed = torch.Event(device, enable_timing=True)
        w = z - 1
        timed.record()
        assert (w * 2).sum().item() == 64 * 64 * 510
    names = [[name for name, _ in program["operators"]] for program in explanation.programs]
    assert ["add.Tensor", "mm"] in names
    assert ["sub.Tensor"] in names


def test_synchronize_finishes_recorded_work(device: torch.device) -> None:
    with torch.tpu.set_eager_mode("fused"):
        torch.tpu.synchronize()
        torch.tpu.reset_cache_stats()
        x = torch.full((3,), 2.0, device=device) * 3
        assert torch.tpu.cache_stats()["requests"] == 0, "recorded only"
        torch.tpu.synchronize()
        assert torch.tpu.cache_stats()["requests"] == 1
        assert x.tolist() == [6, 6, 6]


# ---- memory ----------------------------------------------------------------------------------------------------


def test_memory_is_the_sum_of_live_tensors(device: torch.device, mode: str) -> None:
    gc.collect()
    torch.tpu.synchronize()
    before = torch.tpu.memory_allocated()
    held = [torch.zeros(10 + i, 7, device=device) + i for i in range(5)]
    views = [x[1:].t() for x in held]  # count nothing
    held.append(torch.empty(33, dtype=torch.bool, device=device))
    held.append(torch.zeros(0, device=device))
    for x in held[:3]:
        x.mul_(2).add_(1)
    torch.tpu.synchronize()
    live = sum(x.untyped_storage().nbytes() for x in held)
    assert torch.tpu.memory_allocated() - before == live
    del held[0]
    assert torch.tpu.memory_allocated() - before == live, "a view keeps it"
    del views, x
    live = sum(x.untyped_storage().nbytes() for x in held)
    assert torch.tpu.memory_allocated() - before == live
    del held
    assert torch.tpu.memory_allocated() == before


def test_memory_of_a_loop_is_constant(device: torch.device, mode: str) -> None:
    x = torch.ones(100, device=device)

    def step() -> int:
        nonlocal x
        y = (x * 1.01).sin()
        x = x + y[:1] * 0
        x[3:5] += 1
        torch.tpu.synchronize()
        return torch.tpu.memory_allocated()

    step()
    assert len({step() for _ in range(10)}) == 1


# ---- forked processes ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_fork_with_work_recorded(mode: str) -> None:
    """The child gets an error, also at its end, where it frees inherited memory; the parent continues."""
    code = """
import os, torch
x = torch.ones(3, device="tpu")
y = x * 2
child = os.fork()
if child == 0:
    refused = 0
    for wrong in (lambda: y.tolist(), lambda: x + 1, lambda: torch.ones(1, device="tpu"),
                  torch.tpu.synchronize, lambda: torch.ones(1).to("tpu")):
        try:
            wrong()
        except RuntimeError as error:
            refused += "fork" in str(error)
    assert torch.ones(2).sum().item() == 2
    del x, y
    os._exit(refused)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 5, status
assert y.tolist() == [2, 2, 2] and (x + 1).tolist() == [2, 2, 2]
print("done")
"""
    assert check_python(code, TORCHTPU_EAGER_MODE=mode) == "done\n"


def test_fork_before_the_first_use() -> None:
    code = """
import os, torch
child = os.fork()
if child == 0:
    os._exit(int(torch.ones(3, device="tpu").sum().item()))
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 3, status
assert torch.ones(3, device="tpu").sum().item() == 3
print("done")
"""
    assert check_python(code) == "done\n"
