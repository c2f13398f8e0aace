"""Long runs take no more memory than short ones, and `memory_allocated` is the sum of live storages."""

from __future__ import annotations

import contextlib
import gc
import resource
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers import check, check_python

STEPS = 300
WARM = 20
SETTLED = 150
BATCH = 4
# The allowed growth of malloc's memory: programs that compile after the first steps, runs that the plugin queues, and
# later allocations such as scalars kept for the next step. Resident memory is less precise, because each thread keeps
# an arena with holes.
SLACK_MB = 64
SETTLED_SLACK_MB = 4
# A thread of the plugin frees the temporary memory of a program, here megabytes, shortly after the results are
# ready. The lowest of several readings is without it.
READINGS = 50


# In Debug each call waits, whether the loss is read or not.
@pytest.mark.one_mode
@pytest.mark.parametrize(
    ("mode", "reads"),
    [("debug", True), ("strict", True), ("strict", False), ("fused", True), ("fused", False)],
)
def test_a_long_training_run_does_not_grow(mode: str, reads: bool) -> None:
    code = f"""
import ctypes
import gc
import sys
import time

import torch
from torch import Tensor
from torch.nn import functional as F
from torch import nn

sys.path.insert(0, "examples")
from digits import DigitsNet


class Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


mallinfo2 = ctypes.CDLL(None).mallinfo2
mallinfo2.restype = Mallinfo2

torch.tpu.set_eager_mode({mode!r})
device = torch.device("tpu")
model = DigitsNet().to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
criterion = nn.CrossEntropyLoss()
images, labels = torch.rand({BATCH}, 1, 8, 8), torch.randint(0, 10, ({BATCH},))


def handed_out() -> int:
    torch.tpu.synchronize()
    readings = []
    for _ in range({READINGS}):
        info = mallinfo2()
        readings.append(info.uordblks + info.hblkhd)
        time.sleep(0.01)
    return min(readings)


def step() -> None:
    optimizer.zero_grad(set_to_none=True)
    loss = criterion(model(images.to(device)), labels.to(device))
    loss.backward()
    optimizer.step()
    if {reads}:
        loss.item()


for number in range({STEPS}):
    if number == {WARM}:
        process, allocated = handed_out(), torch.tpu.memory_allocated()
    if number == {SETTLED}:
        settled = handed_out()
    step()
at_the_end = handed_out()
assert torch.tpu.memory_allocated() == allocated, (torch.tpu.memory_allocated(), allocated)
grown = (at_the_end - process) / 2**20
assert grown < {SLACK_MB}, f"{{grown:.1f}} MB more than after {WARM} steps"
grown = (at_the_end - settled) / 2**20
assert grown < {SETTLED_SLACK_MB}, f"{{grown:.1f}} MB more than after {SETTLED} steps"

gc.collect()
live = {{}}
for each in gc.get_objects():
    if isinstance(each, torch.Tensor) and each.device.type == "tpu":
        for tensor in (each, each.grad if each.is_leaf else None):
            if tensor is not None:
                live[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
assert torch.tpu.memory_allocated() == sum(live.values()), (torch.tpu.memory_allocated(), sum(live.values()))
"""
    check_python(code)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts page faults as Linux does")
def test_freed_memory_serves_the_next_step() -> None:
    """A buffer of eight megabytes has 2048 pages; each is a fault if the kernel provides it again. In a process of its
    own: memory that other tests have freed would serve as well."""
    check_python("""
import resource, torch
x = torch.rand(1 << 21, device="tpu")

def faults_of_a_step():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    results = [x * factor for factor in range(16)]
    torch.tpu.synchronize()
    del results
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

with torch.tpu.set_eager_mode("strict"):
    faults = [faults_of_a_step() for _ in range(12)]
    # Other threads of the process have page faults too.
    assert min(faults) < 4 * 2048, faults
    # A thread of the plugin may free buffers of the last step only after `empty_cache`.
    faults = []
    for _ in range(5):
        torch.tpu.empty_cache()
        faults.append(faults_of_a_step())
    assert max(faults) >= 8 * 2048, (faults, "what was kept is returned on demand")
""")


def test_more_than_the_device_can_ever_hold(device: torch.device) -> None:
    gc.collect()  # tensors in the errors of earlier tests
    before = torch.tpu.memory_allocated()
    # accelerate and others look for " out of memory."
    message = r"tpu out of memory\. Tried to allocate 3725.29 GiB. tpu:0 has a total capacity of"
    with pytest.raises(torch.OutOfMemoryError, match=message):
        torch.empty(10**12, device=device)
    with pytest.raises(torch.OutOfMemoryError, match=message):
        torch.ones(2, device=device).resize_(10**12)
    assert torch.tpu.memory_allocated() == before
    assert torch.ones(2, device=device).sum().item() == 2


TOO_LARGE: dict[str, Callable[[Tensor], Tensor]] = {
    "nearest": lambda x: F.interpolate(x, size=2**40),
    "nearest, sum": lambda x: F.interpolate(x[..., :1], size=2**40).sum(),
    "linear": lambda x: F.interpolate(x, size=2**40, mode="linear"),
    "convolution": lambda x: F.conv1d(x, x, padding=2**40),
    "transposed convolution": lambda x: F.conv_transpose1d(x, x, stride=2**40),
    "pad": lambda x: F.pad(x, (2**40, 0)),
    "given result": lambda x: torch.add(x, x.expand(2**40, 1, 4), out=x.new_empty(0)),
    "repeat_interleave": lambda x: x.repeat_interleave(2**40),
}


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_results_that_no_program_can_compute(device: torch.device, name: str, mode: str) -> None:
    """They are refused at the call, before anything is compiled."""
    with torch.tpu.set_eager_mode(mode):
        x = torch.arange(4.0, device=device).view(1, 1, 4)
        before = torch.tpu.memory_stats()["num_ooms"]
        with pytest.raises(torch.OutOfMemoryError, match=r"tpu out of memory\. Tried to allocate \d+.00 GiB"):
            TOO_LARGE[name](x)
        assert torch.tpu.memory_stats()["num_ooms"] == before + 1
        assert (x + 1).flatten().tolist() == [1, 2, 3, 4]


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_more_than_is_free(device: torch.device, mode: str) -> None:
    """The CPU plugin would take the memory, and the kernel would end the process when it is written."""
    total = torch.tpu.mem_get_info()[1]
    kept = torch.arange(4.0, device=device) * 2
    with torch.tpu.set_eager_mode(mode):
        column = torch.ones(1 << 20, 1, device=device)
        row = torch.ones(1, int(total * 0.999) // 4 >> 20, device=device)
        with pytest.raises(
            torch.OutOfMemoryError, match=r"tpu out of memory\. Tried to allocate .* of which .* is free"
        ):
            (column * row)[0, 0].item()
        assert (kept + 1).tolist() == [1, 3, 5, 7]
    torch.tpu.synchronize()


@pytest.mark.parametrize("mode", ["debug", "strict", "fused"])
def test_a_program_without_memory_raises_once(mode: str) -> None:
    """A limit of the process stands for a full device: the plugin tells of it when the program runs."""
    code = f"""
import resource
import torch
from torch import Tensor
from torch.nn import functional as F

torch.tpu.eager_mode = {mode!r}
x = torch.arange(4.0, device="tpu")
(x + 1).cpu()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (3 << 30), used + (3 << 30)))
for rows in (300, 301):
    before = torch.tpu.memory_stats()["num_ooms"]
    try:
        y = (x[:, None, None] * torch.ones(rows, 1, device="tpu")).expand(4, rows, 1 << 20) * x[0]
        y[0, 0, 0].item()
    except torch.tpu.OutOfMemoryError as error:
        print("memory" in str(error), torch.tpu.memory_stats()["num_ooms"] > before)
    y = None
    torch.tpu.synchronize()
    print((x + 1).tolist())
"""
    assert check_python(code) == "True True\n[1.0, 2.0, 3.0, 4.0]\n" * 2


@pytest.mark.one_mode
@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("phase", ["forward", "backward", "step", "between"])
def test_training_goes_on_after_a_lack_of_memory(phase: str, mode: str, device: torch.device) -> None:
    """The second of four steps is given up where memory is missing. On the CPU an exception stands for that."""

    def lack(on: torch.device) -> None:
        if on.type == "cpu":
            raise torch.OutOfMemoryError
        rows = int(torch.tpu.mem_get_info()[1] * 0.999) // 4 >> 20
        (torch.ones(1 << 20, 1, device=on) * torch.ones(1, rows, device=on))[0, 0].item()

    def program(on: torch.device) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1)).to(on)
        optimizer = torch.optim.Adam(model.parameters(), 0.05)
        x = torch.linspace(-1, 1, 32).view(4, 8).to(on)
        losses = []

        def lack_in(place: str) -> None:
            if place == phase and len(losses) == 1:
                lack(on)

        while len(losses) < 4:
            try:
                optimizer.zero_grad()
                hidden = model[1](model[0](x))
                lack_in("forward")
                hidden.register_hook(lambda gradient: lack_in("backward"))
                loss = model[2](hidden).square().mean()
                loss.backward()
                lack_in("between")
                optimizer.step()
                lack_in("step")
                losses.append(loss.detach())
            except torch.OutOfMemoryError:
                losses.append(torch.full((), -1.0, device=on))
        return [torch.stack(losses), *(each.detach() for each in model.parameters())]

    with torch.tpu.set_eager_mode(mode):
        check(program, device)


@pytest.mark.nightly
def test_calls_that_raise_leave_nothing(device: torch.device) -> None:
    x, y = torch.ones(3, device=device), torch.ones(4, device=device)
    matrix = -torch.eye(2, device=device)
    wrong: list[Callable[[], Any]] = [
        lambda: x + y,
        lambda: x.view(7),
        lambda: torch.mm(x, y),
        lambda: x.uniform_(2, 1),
        lambda: x[torch.full((1,), 7, device=device)].cpu(),
        lambda: torch.linalg.cholesky_ex(matrix, check_errors=True),
    ]

    def resident() -> float:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize() / 2**20

    def raise_all(times: int) -> float:
        for _ in range(times):
            for call in wrong:
                with contextlib.suppress(RuntimeError, IndexError):
                    call()
        return resident()

    before = raise_all(300)
    assert raise_all(1500) - before < SETTLED_SLACK_MB


NEW: dict[str, Callable[[torch.device, torch.dtype], Any]] = {
    "empty": lambda device, dtype: torch.empty(2, 3, dtype=dtype, device=device),
    "empty_strided": lambda device, dtype: torch.empty_strided((2, 3), (1, 2), dtype=dtype, device=device),
    "empty_like": lambda device, dtype: torch.empty_like(torch.ones(3, dtype=dtype, device=device)),
    "resize_": lambda device, dtype: torch.ones(2, dtype=dtype, device=device).resize_(4),
    "nothing": lambda device, dtype: torch.empty(0, dtype=dtype, device=device),
    "zeros": lambda device, dtype: torch.zeros(2, dtype=dtype, device=device),
    "a result": lambda device, dtype: torch.ones(3, dtype=dtype, device=device) * 1,
}
DTYPES = (torch.float32, torch.bfloat16, torch.complex64, torch.int8, torch.int64, torch.bool)


@pytest.mark.parametrize("name", NEW)
def test_deterministic_algorithms_fill_new_memory(name: str, device: torch.device) -> None:
    torch.use_deterministic_algorithms(True)
    try:
        for dtype in DTYPES:
            check(lambda device, dtype=dtype: NEW[name](device, dtype).clone(), device)
    finally:
        torch.use_deterministic_algorithms(False)
    check(lambda device: torch.empty(2, device=device).shape, device)
