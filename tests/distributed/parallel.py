"""Training over a mesh of four ranks, in forms that need more than one dimension, or a model made for them. The losses
and the gradients are those of one process on the CPU."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import torch.distributed.checkpoint as checkpoint
import torch.nn.functional as F
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage, schedules
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.experimental import context_parallel
from torch.distributed.tensor.experimental._attention import context_parallel_unshard, set_rotate_method
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.parallel import DistributedDataParallel
from torchtpu import _C
from torchtpu.graphs.encoder import SCALAR_TYPES

from tests.distributed.training import WIDTH, batches, full, new_model
from tests.distributed.worker import DEVICE, Case, run_cases

# PyTorch 2.15 has other names for these.
all_gather = getattr(functional, "all_gather_single", functional.all_gather_tensor)
reduce_scatter = getattr(functional, "reduce_scatter_single", functional.reduce_scatter_tensor)

CASES: dict[str, Case] = {}
run = functools.partial(run_cases, CASES)
EXPERTS = 4


def case(function: Callable[[dist.ProcessGroup], None]) -> Callable[[dist.ProcessGroup], None]:
    CASES[function.__name__] = function
    return function


def grid(group: dist.ProcessGroup, *names: str) -> DeviceMesh:
    """A mesh of two rows, and half the ranks in each."""
    return init_device_mesh(DEVICE.type, (2, group.size() // 2), mesh_dim_names=names)


def close(actual: Any, expected: Any) -> None:
    torch.testing.assert_close(full(actual), full(expected), rtol=1e-4, atol=1e-5)


def check(
    group: dist.ProcessGroup,
    wrap: Callable[[nn.Sequential], nn.Module],
    *,
    parts: int,
    part: int,
    model: Callable[[], nn.Sequential] = new_model,
    optimizer: Callable[[Any], torch.optim.Optimizer] = lambda parameters: torch.optim.SGD(
        parameters, lr=0.1, momentum=0.9, foreach=False
    ),
    reference: Callable[[Any], torch.optim.Optimizer] | None = None,
    after_backward: Callable[[nn.Module], None] = lambda model: None,
) -> None:
    """Trains a plain model on the CPU with whole batches, and a wrapped one on the device with part number `part` of
    `parts` of each batch. The losses of all steps agree, and the gradients of the last one."""
    expected, actual = model(), wrap(model())
    expected_optimizer = (reference or optimizer)(expected.parameters())
    actual_optimizer = optimizer(actual.parameters())
    data = batches(4)
    for inputs, targets in data:
        expected_optimizer.zero_grad()
        expected_loss = F.cross_entropy(expected(inputs), targets)
        expected_loss.backward()
        expected_optimizer.step()
        actual_optimizer.zero_grad()
        mine = inputs.chunk(parts)[part].to(DEVICE), targets.chunk(parts)[part].to(DEVICE)
        loss = F.cross_entropy(actual(mine[0]), mine[1])
        loss.backward()
        after_backward(actual)
        actual_optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole, dist.ReduceOp.AVG, group)
        torch.testing.assert_close(whole.cpu(), expected_loss.detach(), rtol=1e-4, atol=1e-6)
    gradients = {name.removeprefix("module."): each.grad for name, each in actual.named_parameters()}
    for name, parameter in expected.named_parameters():
        name = name if name in gradients else name.replace(".", "._orig_mod.", 1)
        if name in gradients:
            close(gradients[name], parameter.grad)


def sharded(model: nn.Sequential, mesh: DeviceMesh) -> nn.Module:
    for layer in model:
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def split_over(model: nn.Sequential, mesh: DeviceMesh) -> nn.Sequential:
    styles = {"wide": ColwiseParallel(), "narrow": RowwiseParallel()}
    plan = {f"{index}.{name}": style for index in (0, 1) for name, style in styles.items()}
    split: nn.Sequential = parallelize_module(model, mesh, plan)
    return split


def compiled(model: nn.Sequential) -> nn.Sequential:
    for layer in model:
        layer.compile()
    return model


def check_hybrid(group: dist.ProcessGroup, prepare: Callable[[nn.Sequential], nn.Sequential]) -> None:
    mesh = grid(group, "replicas", "shards")
    check(group, lambda model: sharded(prepare(model.to(DEVICE)), mesh), parts=group.size(), part=group.rank())


@case
def hybrid_sharding(group: dist.ProcessGroup) -> None:
    check_hybrid(group, lambda model: model)


@case
def hybrid_sharding_compiled(group: dist.ProcessGroup) -> None:
    check_hybrid(group, compiled)


def check_two_dimensions(group: dist.ProcessGroup, prepare: Callable[[nn.Sequential], nn.Sequential]) -> None:
    mesh = grid(group, "data", "tensor")

    def wrap(model: nn.Sequential) -> nn.Module:
        return sharded(prepare(split_over(model.to(DEVICE), mesh["tensor"])), mesh["data"])

    check(group, wrap, parts=2, part=mesh["data"].get_local_rank())


@case
def sharding_and_tensor_parallel(group: dist.ProcessGroup) -> None:
    check_two_dimensions(group, lambda model: model)


@case
def sharding_and_tensor_parallel_compiled(group: dist.ProcessGroup) -> None:
    check_two_dimensions(group, compiled)


@case
def sequence_parallel(group: dist.ProcessGroup) -> None:
    mesh = init_device_mesh(DEVICE.type, (group.size(),))

    def wrap(model: nn.Sequential) -> nn.Module:
        plan: dict[str, Any] = {
            "0": PrepareModuleInput(input_layouts=Replicate(), desired_input_layouts=Shard(0)),
            "2": ColwiseParallel(input_layouts=Shard(0), output_layouts=Replicate()),
        }
        for index in (0, 1):
            plan |= {
                f"{index}.norm": SequenceParallel(sequence_dim=0),
                f"{index}.wide": ColwiseParallel(input_layouts=Shard(0)),
                f"{index}.narrow": RowwiseParallel(output_layouts=Shard(0), use_local_output=False),
            }
        return parallelize_module(model.to(DEVICE), mesh, plan)

    check(group, wrap, parts=1, part=0)


class Experts(nn.Module):
    """One expert of `EXPERTS` for each token, chosen by a gate: `(tokens, WIDTH)` to the same shape."""

    def __init__(self, group: dist.ProcessGroup | None = None) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS)
        self.wide = nn.Parameter(torch.randn(EXPERTS, WIDTH, 32) / 4)
        self.narrow = nn.Parameter(torch.randn(EXPERTS, 32, WIDTH) / 4)
        self.group = group

    def distribute(self, group: dist.ProcessGroup) -> Experts:
        """Keeps the experts of this rank."""
        self.group = group
        for name in ("wide", "narrow"):
            mine = getattr(self, name).detach().chunk(group.size())[group.rank()]
            setattr(self, name, nn.Parameter(mine.clone()))
        return self

    def exchange(self, tokens: torch.Tensor) -> torch.Tensor:
        """`(EXPERTS, tokens, WIDTH)`: to each rank what is for its experts, and back."""
        if self.group is None:
            return tokens
        received: torch.Tensor = functional.all_to_all_single_autograd(tokens, None, None, self.group)
        return received

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chances = self.gate(x).softmax(-1)
        chance, expert = chances.max(-1)
        chosen = F.one_hot(expert, EXPERTS).to(x.dtype)
        # Each expert has room for all tokens of a rank, so that sizes do not depend on the data.
        given = self.exchange(torch.einsum("te,tw->etw", chosen, x).contiguous())
        ranks = 1 if self.group is None else self.group.size()
        local = EXPERTS // ranks
        # From each rank, for each expert here, its tokens.
        given = given.view(ranks, local, -1, WIDTH).transpose(0, 1).reshape(local, -1, WIDTH)
        hidden = F.gelu(torch.bmm(given, self.wide))
        made = torch.bmm(hidden, self.narrow).view(local, ranks, -1, WIDTH).transpose(0, 1)
        made = self.exchange(made.reshape(EXPERTS, -1, WIDTH).contiguous())
        return x + torch.einsum("etw,te,t->tw", made, chosen, chance)


def new_mixture() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(Experts(), nn.Linear(WIDTH, 10))


@case
def expert_parallel(group: dist.ProcessGroup) -> None:
    def is_own(name: str) -> bool:
        return name.endswith(("wide", "narrow"))

    def reduce(model: nn.Module) -> None:
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            if is_own(name):
                parameter.grad /= group.size()  # each rank's loss is the mean of its own rows
            else:
                dist.all_reduce(parameter.grad, dist.ReduceOp.AVG, group)

    def wrap(model: nn.Sequential) -> nn.Module:
        experts = model[0]
        assert isinstance(experts, Experts)
        experts.distribute(group)
        return model.to(DEVICE)

    for prepare in (wrap, lambda model: compiled(wrap(model))):
        check_mixture(group, prepare, reduce)


def check_mixture(
    group: dist.ProcessGroup, wrap: Callable[[nn.Sequential], nn.Module], reduce: Callable[[nn.Module], None]
) -> None:
    """As `check`; a rank has the gradients of its own experts."""
    expected, actual = new_mixture(), wrap(new_mixture())
    optimizers = [torch.optim.SGD(each.parameters(), lr=0.1, momentum=0.9) for each in (expected, actual)]
    for inputs, targets in batches(4):
        expected_loss = F.cross_entropy(expected(inputs), targets)
        mine = (each.chunk(group.size())[group.rank()].to(DEVICE) for each in (inputs, targets))
        loss = F.cross_entropy(actual(next(mine)), next(mine))
        for optimizer, each in zip(optimizers, (expected_loss, loss), strict=True):
            optimizer.zero_grad()
            each.backward()
        reduce(actual)
        for optimizer in optimizers:
            optimizer.step()
        whole = loss.detach().clone()
        dist.all_reduce(whole, dist.ReduceOp.AVG, group)
        torch.testing.assert_close(whole.cpu(), expected_loss.detach(), rtol=1e-4, atol=1e-6)
    for parameter, reference in zip(actual.parameters(), expected.parameters(), strict=True):
        assert parameter.grad is not None
        assert reference.grad is not None
        own = parameter.shape != reference.shape
        close(parameter.grad, reference.grad.chunk(group.size())[group.rank()] if own else reference.grad)


@case
def attention_over_parts_of_a_sequence(group: dist.ProcessGroup) -> None:
    """Each rank has a part of the sequence; keys and values go round, or are gathered."""
    mesh = init_device_mesh(DEVICE.type, (group.size(),))
    whole = [torch.randn(2, 3, 64 * group.size(), 8, requires_grad=True) for _ in range(3)]
    weights = torch.randn_like(whole[0])
    expected = F.scaled_dot_product_attention(*whole, is_causal=True)
    (expected * weights).sum().backward()
    for method in ("allgather", "alltoall"):
        set_rotate_method(method)
        *parts, part_of_weights = (each.detach().to(DEVICE) for each in (*whole, weights))
        with context_parallel(mesh, buffers=[*parts, part_of_weights], buffer_seq_dims=[2] * 4):
            for each in parts:
                each.requires_grad_()
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                result = F.scaled_dot_product_attention(*parts, is_causal=True)
            (result * part_of_weights).sum().backward()
            made = [result.detach(), *(each.grad for each in parts)]
            for each in parts:
                each.requires_grad_(False)
            united = context_parallel_unshard(mesh, made, [2] * 4)
        for actual, wanted in zip(united, (expected.detach(), *(each.grad for each in whole)), strict=True):
            close(actual, wanted)


@case
def optimizer_without_redundancy(group: dist.ProcessGroup) -> None:
    def optimizer(parameters: Any) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(list(parameters), torch.optim.AdamW, process_group=group, lr=1e-2, foreach=False)

    check(
        group,
        lambda model: DistributedDataParallel(model.to(DEVICE), process_group=group),
        parts=group.size(),
        part=group.rank(),
        optimizer=optimizer,
        reference=lambda parameters: torch.optim.AdamW(parameters, lr=1e-2),
    )


# A schedule, how many stages each rank has, and whether these lie as a V (the last rank's stages follow each other).
SCHEDULES = (
    (schedules.ScheduleGPipe, 1, False),
    (schedules.Schedule1F1B, 1, False),
    (schedules.ScheduleInterleaved1F1B, 2, False),
    (schedules.ScheduleInterleavedZeroBubble, 2, False),
    (schedules.ScheduleZBVZeroBubble, 2, True),
)


@case
def pipelines(group: dist.ProcessGroup) -> None:
    rank, size = group.rank(), group.size()
    for schedule, per_rank, is_v in SCHEDULES:
        torch.manual_seed(0)
        count = size * per_rank
        expected = nn.Sequential(*(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)))
        numbers = [rank] if per_rank == 1 else [rank, count - 1 - rank] if is_v else [rank, rank + size]
        layers = [copy.deepcopy(expected[number]).to(DEVICE) for number in numbers]
        stages = [
            PipelineStage(layer, number, count, DEVICE, group=group)
            for layer, number in zip(layers, numbers, strict=True)
        ]
        made: Any = schedule(stages if per_rank > 1 else stages[0], 2 * size, loss_fn=F.cross_entropy)  # type: ignore[operator]
        optimizers = [
            torch.optim.SGD([parameter for each in group_of for parameter in each.parameters()], lr=0.1)
            for group_of in ([expected], layers)
        ]
        for inputs, targets in batches(4):
            for optimizer in optimizers:
                optimizer.zero_grad()
            expected_loss = F.cross_entropy(expected(inputs), targets)
            expected_loss.backward()
            losses: list[torch.Tensor] = []
            arguments = (inputs.to(DEVICE),) if 0 in numbers else ()
            last = {"target": targets.to(DEVICE), "losses": losses} if count - 1 in numbers else {}
            made.step(*arguments, **last)
            for number, layer in zip(numbers, layers, strict=True):
                for parameter, reference in zip(layer.parameters(), expected[number].parameters(), strict=True):
                    close(parameter.grad, reference.grad)
            if losses:
                torch.testing.assert_close(torch.stack(losses).mean().cpu(), expected_loss.detach(), rtol=1e-4, atol=0)
            for optimizer in optimizers:
                optimizer.step()


@case
def checkpoints_of_another_size(group: dist.ProcessGroup) -> None:
    """What four ranks save, two load, and one."""
    names: list[Any] = [None]
    half = dist.new_group(list(range(group.size() // 2)))
    with TemporaryDirectory() as folder:
        if group.rank() == 0:
            names = [folder]
        dist.broadcast_object_list(names, 0, group)
        target = Path(names[0])
        model = sharded(new_model().to(DEVICE), init_device_mesh(DEVICE.type, (group.size(),)))
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(2, WIDTH, device=DEVICE)).sum().backward()
        optimizer.step()
        states, optimizers = get_state_dict(model, optimizer)
        checkpoint.async_save({"model": states, "optimizer": optimizers}, checkpoint_id=target).result()
        dist.barrier(group)
        whole = [full(parameter) for parameter in model.parameters()]
        moments = [full(optimizer.state[each]["exp_avg"]) for each in model.parameters()]
        for ranks in (2, 1):
            if group.rank() >= ranks:
                continue
            other: nn.Module = new_model().to(DEVICE)
            if ranks == 2:
                other = sharded(new_model().to(DEVICE), DeviceMesh.from_group(half, DEVICE.type))
            other_optimizer = torch.optim.AdamW(other.parameters())
            other_states, other_optimizers = get_state_dict(other, other_optimizer)
            loaded = {"model": other_states, "optimizer": other_optimizers}
            checkpoint.load(
                loaded, checkpoint_id=target, process_group=half if ranks == 2 else None, no_dist=ranks == 1
            )
            set_state_dict(
                other, other_optimizer, model_state_dict=loaded["model"], optim_state_dict=loaded["optimizer"]
            )
            for parameter, expected, moment in zip(other.parameters(), whole, moments, strict=True):
                close(parameter, expected)
                close(other_optimizer.state[parameter]["exp_avg"], moment)
        dist.barrier(group)


def programs(group: dist.ProcessGroup) -> dict[str, Callable[[torch.Tensor], torch.Tensor]]:
    """Functions of a tensor with a row for each rank, whose collectives are over all ranks or over parts of a mesh."""
    mesh = grid(group, "rows", "columns")
    rows, columns = mesh["rows"], mesh["columns"]

    def layer(x: torch.Tensor) -> torch.Tensor:
        gathered = all_gather(x, 0, columns)
        partial = (gathered.float() @ gathered.float().t()).relu()
        return reduce_scatter(partial, "sum", 0, rows) * 2

    return {
        **{
            f"all_reduce {name}": functools.partial(functional.all_reduce, reduceOp=name, group=group)
            for name in ("sum", "avg", "product", "min", "max")
        },
        "all_reduce over rows": lambda x: functional.all_reduce(x + 1, "sum", rows),
        "all_gather": lambda x: all_gather(x, 0, group),
        "all_gather along the second dimension": lambda x: all_gather(x, 1, columns),
        "reduce_scatter": lambda x: reduce_scatter(x, "sum", 0, group),
        "reduce_scatter over rows": lambda x: reduce_scatter(x, "max", 0, rows),
        "all_to_all": lambda x: functional.all_to_all_single(x, None, None, group),
        "all_to_all over columns": lambda x: functional.all_to_all_single(x, None, None, columns),
        "coalesced": lambda x: sum(functional.all_reduce_coalesced([x, x * 2], "sum", group)) + 0,
        "a layer": layer,
    }


@case
def programs_of_all_ranks(group: dist.ProcessGroup) -> None:
    """A program that has its collectives inside is the same text on all ranks. Run on as many devices of one process,
    it computes what the ranks compute with collectives of their own."""
    for dtype in (torch.float32, torch.int32):
        for name, function in programs(group).items():
            # Those of integers differ where a collective computes.
            if dtype == torch.int32 and not name.startswith(("all_reduce ", "reduce_scatter")):
                continue
            x = (torch.arange(4 * group.size()).reshape(group.size(), 4) % 5 + group.rank()).to(dtype)
            result = function(x.to(DEVICE)).cpu()
            text = torch.tpu.stablehlo(function, x.to(DEVICE))
            found: list[Any] = [None] * group.size()
            dist.all_gather_object(found, (text, x, result), group)
            texts, given, expected = zip(*found, strict=True)
            assert set(texts) == {text}, name
            assert "stablehlo.all_" in text or "stablehlo.reduce_scatter" in text, name
            if group.rank() > 0:
                continue
            made = run_replicas(text, [[each] for each in given], [torch.empty_like(result)])
            for (actual,), each in zip(made, expected, strict=True):
                torch.testing.assert_close(actual, each, rtol=1e-6, atol=0, msg=name)
    dist.barrier(group)


def run_replicas(text: str, inputs: list[list[torch.Tensor]], like: list[torch.Tensor]) -> list[list[torch.Tensor]]:
    """Runs a program with a replica on each of the first devices of this process."""

    def described(tensor: torch.Tensor) -> tuple[int, list[int]]:
        return SCALAR_TYPES[tensor.dtype], list(tensor.shape)

    given = [[(described(each), each.numpy().tobytes()) for each in replica] for replica in inputs]
    made = _C.run_replicas(text, given, [described(each) for each in like])
    return [
        [
            torch.frombuffer(bytearray(data), dtype=each.dtype).view(each.shape)
            for data, each in zip(replica, like, strict=True)
        ]
        for replica in made
    ]
