"""Training over several ranks in PyTorch's own ways: losses and parameters are those of one process on the CPU."""

from __future__ import annotations

import copy
import functools
import os
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
import torch.nn.functional as F
import torchtpu.compile.backend  # noqa: F401 (imported before the ranks are forked, it costs no rank time)
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from tests.distributed.worker import DEVICE, Case, run_cases

CASES: dict[str, Case] = {}
run = functools.partial(run_cases, CASES)
WIDTH, CLASSES, ROWS = 16, 10, 8
# `make test-nightly` trains longer.
STEPS = int(os.environ.get("TORCHTPU_TRAINING_STEPS", "4"))


def case(function: Callable[[dist.ProcessGroup], None]) -> Callable[[dist.ProcessGroup], None]:
    CASES[function.__name__] = function
    return function


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.wide, self.narrow = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.narrow(F.gelu(self.wide(self.norm(x))))


def new_model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block(), nn.Linear(WIDTH, CLASSES))


def batches(ranks: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Whole batches; each rank takes its rows."""
    generator = torch.Generator().manual_seed(1)
    rows = ROWS * ranks
    return [
        (torch.randn(rows, WIDTH, generator=generator), torch.randint(CLASSES, (rows,), generator=generator))
        for _ in range(STEPS)
    ]


def train(model: nn.Module, data: list[tuple[torch.Tensor, torch.Tensor]], **options: Any) -> list[torch.Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)
    losses = []
    for inputs, targets in data:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def full(tensor: Any) -> torch.Tensor:
    whole: torch.Tensor = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
    return whole.detach().cpu()


def check(
    group: dist.ProcessGroup, wrap: Callable[[nn.Sequential], nn.Module], *, split: bool = True, **options: Any
) -> None:
    """Trains a wrapped model on the device and a plain one on the CPU. With `split` each rank has rows of its own."""
    expected_model, data = new_model(), batches(group.size())
    expected = train(expected_model, data)
    model = wrap(copy.deepcopy(new_model()))
    rows = slice(group.rank() * ROWS, (group.rank() + 1) * ROWS) if split else slice(None)
    losses = train(model, [(inputs[rows].to(DEVICE), targets[rows].to(DEVICE)) for inputs, targets in data], **options)
    for loss, reference in zip(losses, expected, strict=True):
        if split:
            dist.all_reduce(loss, dist.ReduceOp.AVG, group)
        torch.testing.assert_close(loss.cpu(), reference, rtol=1e-4, atol=1e-6)
    parameters = [full(parameter) for parameter in model.parameters()]
    if all(a.shape == b.shape for a, b in zip(parameters, expected_model.parameters(), strict=False)):
        for parameter, reference in zip(parameters, expected_model.parameters(), strict=True):
            torch.testing.assert_close(parameter, reference.detach(), rtol=1e-3, atol=1e-4)


def mesh_of(group: dist.ProcessGroup) -> DeviceMesh:
    return DeviceMesh.from_group(group, DEVICE.type)


@case
def ddp(group: dist.ProcessGroup) -> None:
    check(group, lambda model: DistributedDataParallel(model.to(DEVICE), process_group=group))


@case
def ddp_with_few_buckets_as_views(group: dist.ProcessGroup) -> None:
    options = {"gradient_as_bucket_view": True, "static_graph": True, "bucket_cap_mb": 0.001}
    check(group, lambda model: DistributedDataParallel(model.to(DEVICE), process_group=group, **options))


@case
def ddp_compiled(group: dist.ProcessGroup) -> None:
    check(group, lambda model: torch.compile(DistributedDataParallel(model.to(DEVICE), process_group=group)))


@case
def ddp_accumulating(group: dist.ProcessGroup) -> None:
    data = batches(group.size())
    expected = new_model()
    for inputs, targets in data:
        F.cross_entropy(expected(inputs), targets).backward()
    model = DistributedDataParallel(new_model().to(DEVICE), process_group=group)
    for step, (inputs, targets) in enumerate(data):
        rows = slice(group.rank() * ROWS, (group.rank() + 1) * ROWS)
        model.require_backward_grad_sync = step == STEPS - 1
        F.cross_entropy(model(inputs[rows].to(DEVICE)), targets[rows].to(DEVICE)).backward()
    for parameter, reference in zip(model.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad.cpu(), reference.grad, rtol=1e-4, atol=1e-5)


def check_batch_norm(group: dist.ProcessGroup, prepare: Callable[[nn.Module], nn.Module]) -> None:
    """Batches of another length on each rank: what all ranks compute is what one process does with the whole batch."""
    torch.manual_seed(0)
    expected = nn.BatchNorm2d(4)
    nn.init.normal_(expected.weight)
    actual = prepare(nn.SyncBatchNorm.convert_sync_batchnorm(copy.deepcopy(expected), group).to(DEVICE))
    lengths = [2 * rank + 1 for rank in range(group.size())]
    for memory_format in (torch.contiguous_format, torch.channels_last):
        whole, factors = (torch.randn(sum(lengths), 4, 3, 2).to(memory_format=memory_format) for _ in range(2))
        mine, my_factors = (each.split(lengths)[group.rank()].to(DEVICE).detach() for each in (whole, factors))
        whole.requires_grad_()
        mine.requires_grad_()
        for model, batch, factor in ((expected, whole, factors), (actual, mine, my_factors)):
            model.zero_grad()
            (model(batch) * factor).sum().backward()
        with torch.no_grad():
            torch.testing.assert_close(
                actual(mine).cpu(), expected(whole).split(lengths)[group.rank()], rtol=1e-4, atol=1e-5
            )
        torch.testing.assert_close(mine.grad.cpu(), whole.grad.split(lengths)[group.rank()], rtol=1e-3, atol=1e-5)
        for parameter, reference in zip(actual.parameters(), expected.parameters(), strict=True):
            dist.all_reduce(parameter.grad, group=group)
            torch.testing.assert_close(parameter.grad.cpu(), reference.grad, rtol=1e-3, atol=1e-4)
        for buffer, reference in zip(actual.buffers(), expected.buffers(), strict=True):
            torch.testing.assert_close(buffer.cpu(), reference, rtol=1e-4, atol=1e-5)
    for model in (actual, expected):
        model.eval()
    torch.testing.assert_close(actual(mine).cpu(), expected(whole).split(lengths)[group.rank()], rtol=1e-4, atol=1e-5)


@case
def synchronized_batch_norm(group: dist.ProcessGroup) -> None:
    check_batch_norm(group, lambda model: model)


@case
def synchronized_batch_norm_compiled(group: dist.ProcessGroup) -> None:
    check_batch_norm(group, torch.compile)


def sharded(model: nn.Sequential, mesh: DeviceMesh, **options: Any) -> nn.Module:
    for layer in model:
        fully_shard(layer, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


@case
def fsdp2(group: dist.ProcessGroup) -> None:
    check(group, lambda model: sharded(model.to(DEVICE), mesh_of(group)))


@case
def fsdp2_compiled(group: dist.ProcessGroup) -> None:
    def wrap(model: nn.Sequential) -> nn.Module:
        for layer in model:
            layer.compile()
        return sharded(model.to(DEVICE), mesh_of(group))

    check(group, wrap)


@case
def fsdp2_with_clipping_and_mixed_precision(group: dist.ProcessGroup) -> None:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    model = sharded(new_model().to(DEVICE), mesh_of(group), mp_policy=policy)
    (inputs, targets), *_ = batches(group.size())
    rows = slice(group.rank() * ROWS, (group.rank() + 1) * ROWS)
    F.cross_entropy(model(inputs[rows].to(DEVICE)).float(), targets[rows].to(DEVICE)).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    expected = new_model()
    F.cross_entropy(expected(inputs), targets).backward()
    reference = nn.utils.clip_grad_norm_(expected.parameters(), 0.1)
    torch.testing.assert_close(full(norm), reference, rtol=2e-2, atol=1e-3)


@case
def fsdp2_offloaded(group: dist.ProcessGroup) -> None:
    check(group, lambda model: sharded(model, mesh_of(group), offload_policy=CPUOffloadPolicy(pin_memory=False)))


@case
def fsdp1(group: dist.ProcessGroup) -> None:
    check(group, lambda model: FullyShardedDataParallel(model.to(DEVICE), process_group=group, use_orig_params=True))


@case
def tensor_parallel(group: dist.ProcessGroup) -> None:
    def wrap(model: nn.Sequential) -> nn.Module:
        plan = {
            f"{i}.{name}": style
            for i in (0, 1)
            for name, style in (("wide", ColwiseParallel()), ("narrow", RowwiseParallel()))
        }
        return parallelize_module(model.to(DEVICE), mesh_of(group), plan)

    check(group, wrap, split=False, foreach=False)


@case
def distributed_tensors(group: dist.ProcessGroup) -> None:
    mesh = mesh_of(group)
    whole = torch.arange(15.0).reshape(5, 3)
    rows = distribute_tensor(whole.to(DEVICE), mesh, [Shard(0)])
    columns = rows.redistribute(mesh, [Shard(1)])
    torch.testing.assert_close(full(columns), whole)
    torch.testing.assert_close(full(rows @ columns.t()), whole @ whole.t())
    torch.testing.assert_close(full(rows.sum(0)), whole.sum(0))
    torch.testing.assert_close(full(rows.redistribute(mesh, [Replicate()])), whole)


@case
def pipelines(group: dist.ProcessGroup) -> None:
    rank, size = group.rank(), group.size()
    (inputs, targets), *_ = batches(2)
    expected = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(size)))
    expected_loss = F.cross_entropy(expected(inputs), targets)
    expected_loss.backward()
    for schedule in (ScheduleGPipe, Schedule1F1B):
        layer = copy.deepcopy(expected[rank])
        layer.zero_grad()
        stage = PipelineStage(layer.to(DEVICE), rank, size, DEVICE, group=group)
        losses: list[torch.Tensor] = []
        steps = schedule(stage, max(4, size), loss_fn=F.cross_entropy)
        arguments = (inputs.to(DEVICE),) if rank == 0 else ()
        steps.step(*arguments, **({"target": targets.to(DEVICE), "losses": losses} if rank == size - 1 else {}))
        if losses:
            torch.testing.assert_close(torch.stack(losses).mean().cpu(), expected_loss.detach())
        torch.testing.assert_close(layer.weight.grad.cpu(), expected[rank].weight.grad, rtol=1e-4, atol=1e-6)


@case
def checkpoints(group: dist.ProcessGroup) -> None:
    names: list[Any] = [None]
    with TemporaryDirectory() as folder:
        if group.rank() == 0:
            names = [folder]
        dist.broadcast_object_list(names, 0, group)
        target = Path(names[0])
        model = sharded(new_model().to(DEVICE), mesh_of(group))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, WIDTH, device=DEVICE)).sum().backward()
        optimizer.step()
        states, optimizers = get_state_dict(model, optimizer)
        checkpoint.save({"model": states, "optimizer": optimizers}, checkpoint_id=target / "saved", process_group=group)
        future = checkpoint.async_save({"model": states}, checkpoint_id=target / "async")
        other = sharded(new_model().to(DEVICE), mesh_of(group))
        other_optimizer = torch.optim.AdamW(other.parameters())
        other_states, other_optimizers = get_state_dict(other, other_optimizer)
        loaded = {"model": other_states, "optimizer": other_optimizers}
        checkpoint.load(loaded, checkpoint_id=target / "saved", process_group=group)
        set_state_dict(other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"])
        for loaded_parameter, parameter in zip(other.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(full(loaded_parameter), full(parameter))
        future.result()
        dist.barrier(group)


@case
def explained(group: dist.ProcessGroup) -> None:
    model = DistributedDataParallel(new_model().to(DEVICE), process_group=group)
    (inputs, targets), *_ = batches(1)
    with torch.tpu.explain() as explanation:
        F.cross_entropy(model(inputs.to(DEVICE)), targets.to(DEVICE)).backward()
    found = [each for each in explanation.collectives if each["name"].startswith("ALLREDUCE (number ")]
    assert sum(each["bytes"] for each in found) == sum(4 * each.numel() for each in model.parameters())
    for each in found:
        assert 0 <= each["posted"] <= each["begun"] <= each["done"] <= explanation.elapsed
        assert 0 <= each["exposed"] <= each["done"] - each["begun"] + 1e-9
        assert "no devices of other ranks" in each["cut"]
    assert "ALLREDUCE" in str(explanation)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        explanation.save_chrome_trace(path)
        assert '"network"' in path.read_text()
