"""torch.distributed without a backend's name: a script that only uses the CPU does what it does without torchtpu."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.distributed.launch import python, torchrun

SCRIPT = """
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor

if len(sys.argv) > 1:
    dist.init_process_group(init_method=sys.argv[1], rank=0, world_size=1)
else:
    dist.init_process_group()
rank, size = dist.get_rank(), dist.get_world_size()
lines = [dist.get_backend(), dist.group.WORLD.name(), dist.group.WORLD._device_types]

tensor = torch.arange(4.0) + rank
dist.all_reduce(tensor)
lines.append(tensor)
dist.all_reduce(tensor, group=dist.new_group())
lines.append(tensor)
objects = [None] * size
dist.all_gather_object(objects, {"rank": rank})
lines.append(objects)
dist.barrier()
dist.monitored_barrier()

torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(3, 2))
model(torch.ones(5, 3) * rank).square().sum().backward()
lines.append(model.module.weight.grad)

mesh = init_device_mesh("cpu", (size,))
lines.append(distribute_tensor(torch.arange(8.0), mesh, [Shard(0)]).square().sum().full_tensor())
sharded = torch.nn.Linear(4, 4)
fully_shard(sharded, mesh=mesh)
sharded(torch.ones(2, 4) * rank).sum().backward()
lines.append(sharded.weight.grad.full_tensor())

if rank == 0:
    print(*lines, sep="\\n")
dist.destroy_process_group()
"""


def printed(completed: subprocess.CompletedProcess[str]) -> str:
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.mark.nightly
def test_groups_without_a_backends_name(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = printed(torchrun([str(script)])).splitlines()
    expected = printed(torchrun([str(script)], TORCH_DEVICE_BACKEND_AUTOLOAD="0")).splitlines()
    assert found[:3] == ["undefined", "custom", "[device(type='tpu'), device(type='cpu')]"]
    assert found[3:] == expected[3:]


def test_a_process_by_itself(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    found = printed(python([str(script), f"file://{tmp_path}/store"]))
    assert found.startswith("undefined\ncustom\n")


def test_import_loads_no_more_of_torch_distributed() -> None:
    program = "import sys, torch; print(sorted(name for name in sys.modules if 'torch.distributed' in name))"
    without = printed(python(["-c", program], TORCH_DEVICE_BACKEND_AUTOLOAD="0"))
    assert printed(python(["-c", program])) == without


BARRIER = """
import sys

import torch
import torch.distributed as dist

dist.init_process_group("gloo", init_method=sys.argv[1], rank=0, world_size=1)
dist.barrier(device_ids=[0])
dist.all_reduce(torch.ones(2))
try:
    dist.all_reduce(torch.ones(2, device="tpu"))
except RuntimeError as error:
    print(error)
"""


def test_a_group_of_gloo_takes_a_barrier_with_a_devices_number(tmp_path: Path) -> None:
    """accelerate writes its barriers so, also for the CPU."""
    script = tmp_path / "script.py"
    script.write_text(BARRIER)
    found = printed(python([str(script), f"file://{tmp_path}/store"])).splitlines()
    assert found[-1] == "ProcessGroupGloo::allreduce: unsupported device type tpu"


FAKE = """
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
x = torch.ones(3, device="tpu")
dist.all_reduce(x)
layer = torch.nn.Linear(8, 8).to("tpu")
fully_shard(layer, mesh=init_device_mesh("tpu", (4,)))
layer(torch.ones(2, 8, device="tpu")).sum().backward()
print(x.tolist(), layer.weight.grad.shape, layer.weight.grad.to_local().shape)
"""


def test_a_fake_group_takes_the_device() -> None:
    assert printed(python(["-c", FAKE])).split("\n")[0] == "[1.0, 1.0, 1.0] torch.Size([8, 8]) torch.Size([2, 8])"
