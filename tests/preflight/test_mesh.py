"""Scripts of many ranks, of which one is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from torchtpu.preflight.chips import CHIPS, topology_of
from torchtpu.preflight.mesh import devices_of, parse

from tests.preflight.recorded import record_mesh

FSDP = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

dist.init_process_group()
torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))
mesh = dist.init_device_mesh("tpu", (2, 8), mesh_dim_names=("data", "fsdp"))
model = nn.Sequential(*[nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 256)) for _ in range(3)])
for block in model:
    fully_shard(block, mesh=mesh["fsdp"])
fully_shard(model, mesh=mesh["fsdp"])
model.to("tpu")
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(9):
    loss = model(torch.randn(64, 256, device="tpu")).square().mean()
    loss.backward()
    for parameter in model.parameters():
        dist.all_reduce(parameter.grad.to_local(), group=mesh.get_group("data"))
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"""


def test_a_mesh(tmp_path: Path) -> None:
    """The bytes of FSDP2 and of a gradient's all-reduce, along the axes of a mesh of 16 devices, in one process."""
    failure, steps, sent, roles, modules = record_mesh(tmp_path, FSDP)
    assert (failure, steps) == ("", 3)
    size = 3 * (2 * 256 * 1024 + 1024 + 256) * 4
    # Parameters are gathered forward and backward, and gradients are scattered.
    assert sent["fsdp"] == pytest.approx(3 * size * 7 / 8, rel=0.02)
    assert sent["data"] == pytest.approx(size / 8, rel=0.02)
    assert {"parameters", "gradients", "optimizer_state"} <= {role for role, _ in roles}
    assert ["gathered", "2: split_with_sizes_copy.out"] in roles
    # Blocks that are alike run one program, each under its own name.
    assert {f"{block}.0{part}" for block in range(3) for part in ("", " (backward)")} <= set(modules)
    assert ["gathered", "1.2 (backward): allgather_base over fsdp"] in roles
    # Only what the script draws has no name.
    assert {name for role, name in roles if role == "inputs"} <= {""}


TENSOR_PARALLEL = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

dist.init_process_group()
torch.tpu.set_device(int(os.environ["LOCAL_RANK"]))
mesh = dist.init_device_mesh("tpu", (2, 8), mesh_dim_names=("data", "fsdp"))
model = nn.Sequential(*[nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(3)]).to("tpu")
for block in model:
    parallelize_module(block, mesh["fsdp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), 0.1)
while True:
    loss = model(torch.randn(32, 64, device="tpu", requires_grad=True)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
"""


def test_tensor_parallel(tmp_path: Path) -> None:
    """DTensor's collectives: a block sums its results forward, and the gradients of its inputs backward."""
    failure, steps, sent, *_ = record_mesh(tmp_path, TENSOR_PARALLEL)
    assert (failure, steps) == ("", 3)
    assert sent == {"fsdp": pytest.approx(3 * 2 * (32 * 64 * 4) * 2 * 7 / 8)}


DDP = """
import os
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
torch.accelerator.set_device_index(int(os.environ["LOCAL_RANK"]))
device = torch.accelerator.current_accelerator()
dist.init_process_group()
model = DistributedDataParallel(nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device))
HOOK
data = TensorDataset(torch.randn(512, 64))
loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
optimizer = torch.optim.AdamW(model.parameters())
for epoch in range(9):
    loader.sampler.set_epoch(epoch)
    for number, (x,) in enumerate(loader):
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = model(x.to(device)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if rank == 0:
            print(loss.item())
"""


@pytest.mark.parametrize(
    ("hook", "element"),
    [("", 4), ("model.register_comm_hook(None, default_hooks.bf16_compress_hook)", 2)],
    ids=["plain", "compressed"],
)
def test_data_parallel(hook: str, element: int, tmp_path: Path) -> None:
    """DDP as under torchrun, with mixed precision: each gradient is reduced once in a step, over all ranks."""
    failure, steps, sent, roles, modules = record_mesh(tmp_path, DDP.replace("HOOK", hook))
    assert (failure, steps) == ("", 3)
    size = (2 * 64 * 256 + 256 + 64) * element
    assert sent == {"data, fsdp": pytest.approx(size * 2 * 15 / 16)}
    assert ["parameters", "module.0.weight"] in roles
    assert {"module.0", "module.2 (backward)"} <= set(modules)


def test_topologies() -> None:
    assert [topology_of(name) for name in ("v5e", "v5p", "v6e:2x2")] == ["v5e:1x1", "v5p:2x2x1", "v6e:1x1"]
    assert [devices_of(name) for name in ("v5e", "v5e:4x4", "v5p:2x2x4", "tpu7x:2x2x1")] == [1, 16, 16, 8]
    assert parse("", "v5e") is None
    mesh = parse("data=2,fsdp=8", "v5e:4x4")
    assert mesh is not None
    assert (mesh.axis_of([0, 1, 2]), mesh.axis_of([0, 8]), mesh.axis_of(range(16))) == ("fsdp", "data", "data, fsdp")
    # A side of 16 chips is a ring, one of 4 is none; two sides carry twice as much.
    assert [parse("x=16", "v5e:4x4").bandwidth("x"), parse("y=16,x=16", "v5e:16x16").bandwidth("x")] == [100e9, 100e9]  # type: ignore[union-attr]
    with pytest.raises(ValueError, match="the mesh fsdp=8 has 8 ranks, and v5e:4x4 has 16 devices"):
        parse("fsdp=8", "v5e:4x4")
    with pytest.raises(ValueError, match="--mesh takes axes such as fsdp=8,tp=2, not fsdp"):
        parse("fsdp", "v5e:4x4")
    assert all(chip.flops > 1e14 and chip.memory > 2**33 for chip in CHIPS.values())
