"""Each collective of torch.distributed on tensors of the device, against what it must give."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

from tests.distributed.worker import DEVICE, Case, run_cases

CASES: dict[str, Case] = {}
run = functools.partial(run_cases, CASES)
MOVED = (torch.bool, torch.int16, torch.int64, torch.bfloat16, torch.float32, torch.float64, torch.complex64)
REDUCED = (torch.uint8, torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64)


def case(function: Callable[..., None]) -> Callable[..., None]:
    CASES[function.__name__] = function
    return function


def for_dtypes(*dtypes: torch.dtype) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def register(function: Callable[..., None]) -> Callable[..., None]:
        for dtype in dtypes:
            CASES[f"{function.__name__}[{dtype}]"] = functools.partial(function, dtype=dtype)
        return function

    return register


def value(rank: int, shape: tuple[int, ...] = (3, 2), dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """What a rank brings along, on the CPU: small whole numbers, so that sums are exact."""
    numbers = (torch.arange(torch.Size(shape).numel()) + 3 * rank) % 5
    return numbers.reshape(shape).to(dtype)


def values(group: dist.ProcessGroup, *args: Any, **kwargs: Any) -> list[torch.Tensor]:
    return [value(rank, *args, **kwargs) for rank in range(group.size())]


def equal(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.device.type == DEVICE.type
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=0)


@for_dtypes(*REDUCED)
def all_reduce(group: dist.ProcessGroup, dtype: torch.dtype) -> None:
    brought = torch.stack(values(group, dtype=dtype))
    operations = {
        dist.ReduceOp.SUM: brought.sum(0, dtype=dtype),
        dist.ReduceOp.PRODUCT: brought.prod(0, dtype=dtype),
        dist.ReduceOp.MIN: brought.amin(0),
        dist.ReduceOp.MAX: brought.amax(0),
    }
    for operation, expected in operations.items():
        tensor = value(group.rank(), dtype=dtype).to(DEVICE)
        dist.all_reduce(tensor, operation, group)
        equal(tensor, expected)


@case
def all_reduce_averages(group: dist.ProcessGroup) -> None:
    for dtype in (torch.float32, torch.int64):
        tensor = value(group.rank(), dtype=dtype).to(DEVICE)
        dist.all_reduce(tensor, dist.ReduceOp.AVG, group)
        whole = sum(values(group, dtype=dtype))
        equal(tensor, (whole / group.size()).to(dtype))


@case
def all_reduce_multiplied_before(group: dist.ProcessGroup) -> None:
    tensor = value(group.rank()).to(DEVICE)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(2.0), group)
    equal(tensor, 2 * sum(values(group)))


@case
def all_reduce_of_bits_and_booleans(group: dist.ProcessGroup) -> None:
    operations = {
        dist.ReduceOp.BAND: torch.bitwise_and,
        dist.ReduceOp.BOR: torch.bitwise_or,
        dist.ReduceOp.BXOR: torch.bitwise_xor,
    }
    for operation, function in operations.items():
        tensor = value(group.rank(), dtype=torch.int32).to(DEVICE)
        dist.all_reduce(tensor, operation, group)
        equal(tensor, functools.reduce(function, values(group, dtype=torch.int32)))
    tensor = value(group.rank(), dtype=torch.bool).to(DEVICE)
    dist.all_reduce(tensor, group=group)
    equal(tensor, torch.stack(values(group, dtype=torch.bool)).any(0))


@case
def all_reduce_of_complex_numbers(group: dist.ProcessGroup) -> None:
    tensor = (value(group.rank()) + 1j).to(DEVICE)
    dist.all_reduce(tensor, group=group)
    equal(tensor, sum(values(group)) + group.size() * 1j)


@case
def all_reduce_of_views(group: dist.ProcessGroup) -> None:
    base = value(group.rank(), (4, 4)).to(DEVICE)
    dist.all_reduce(base[:, 1], group=group)
    dist.all_reduce(base.t()[2:, ::2], group=group)
    expected = value(group.rank(), (4, 4))
    whole = sum(values(group, (4, 4)))
    expected[:, 1] = whole[:, 1]
    expected.t()[2:, ::2] = whole.t()[2:, ::2]
    equal(base, expected)


@case
def all_reduce_of_nothing(group: dist.ProcessGroup) -> None:
    tensor = torch.empty(0, 3, device=DEVICE)
    dist.all_reduce(tensor, group=group)
    assert tensor.shape == (0, 3)


@case
def all_reduce_of_a_number(group: dist.ProcessGroup) -> None:
    tensor = torch.tensor(float(group.rank()), device=DEVICE)
    dist.all_reduce(tensor, group=group)
    equal(tensor, torch.tensor(float(sum(range(group.size())))))


@case
def all_reduce_in_a_chain(group: dist.ProcessGroup) -> None:
    tensor = torch.eye(64, device=DEVICE) * (group.rank() + 1)
    for _ in range(6):
        tensor = tensor @ tensor
        work = dist.all_reduce(tensor, dist.ReduceOp.MIN, group, async_op=True)
        work.wait()
        tensor = tensor + 0
    equal(tensor, torch.eye(64))


@case
def all_reduce_leaves_copies_alone(group: dist.ProcessGroup) -> None:
    tensor = value(group.rank()).to(DEVICE)
    before, doubled = tensor.clone(), tensor * 2
    alias = tensor.view(-1)
    dist.all_reduce(tensor, group=group)
    equal(before, value(group.rank()))
    equal(doubled, 2 * value(group.rank()))
    equal(alias, sum(values(group)).view(-1))


@case
def all_reduce_coalesced(group: dist.ProcessGroup) -> None:
    tensors = [value(group.rank()).to(DEVICE), value(group.rank(), (5,)).to(DEVICE)]
    dist.all_reduce_coalesced(tensors, group=group)
    equal(tensors[0], sum(values(group)))
    equal(tensors[1], sum(values(group, (5,))))


@for_dtypes(*MOVED)
def broadcast(group: dist.ProcessGroup, dtype: torch.dtype) -> None:
    for root in range(group.size()):
        tensor = value(group.rank(), dtype=dtype).to(DEVICE)
        dist.broadcast(tensor, root, group)
        equal(tensor, value(root, dtype=dtype))


@case
def reduce(group: dist.ProcessGroup) -> None:
    for root in range(group.size()):
        tensor = value(group.rank()).to(DEVICE)
        dist.reduce(tensor, root, group=group)
        equal(tensor, sum(values(group)) if group.rank() == root else value(group.rank()))


@for_dtypes(*MOVED)
def all_gather(group: dist.ProcessGroup, dtype: torch.dtype) -> None:
    mine, all_of_them = value(group.rank(), dtype=dtype), values(group, dtype=dtype)
    results = [torch.zeros_like(mine, device=DEVICE) for _ in all_of_them]
    dist.all_gather(results, mine.to(DEVICE), group)
    for result, expected in zip(results, all_of_them, strict=True):
        equal(result, expected)
    whole = torch.zeros(group.size() * 3, 2, dtype=dtype, device=DEVICE)
    dist.all_gather_into_tensor(whole, mine.to(DEVICE), group)
    equal(whole, torch.cat(all_of_them))


@case
def all_gather_of_uneven_sizes(group: dist.ProcessGroup) -> None:
    expected = [value(rank, (rank + 1, 2)) for rank in range(group.size())]
    results = [torch.zeros_like(each, device=DEVICE) for each in expected]
    dist.all_gather(results, expected[group.rank()].to(DEVICE), group)
    for result, each in zip(results, expected, strict=True):
        equal(result, each)


@case
def all_gather_of_parts_that_may_be_empty(group: dist.ProcessGroup) -> None:
    for dtype in (torch.bool, torch.int64, torch.complex64):
        expected = [value(rank, (2 * rank,)).to(dtype) for rank in range(group.size())]
        results = [torch.zeros_like(each, device=DEVICE) for each in expected]
        work = dist.all_gather(results, expected[group.rank()].to(DEVICE), group, async_op=True)
        assert work is not None
        work.wait()
        assert [each.data_ptr() for each in work.result()] == [each.data_ptr() for each in results]
        for result, each in zip(results, expected, strict=True):
            equal(result, each)


@case
def all_gather_into_views(group: dist.ProcessGroup) -> None:
    room = torch.zeros(group.size(), 6, device=DEVICE)
    dist.all_gather([room[rank, ::2] for rank in range(group.size())], value(group.rank(), (3,)).to(DEVICE), group)
    equal(room[:, ::2], torch.stack(values(group, (3,))))
    equal(room[:, 1::2], torch.zeros(group.size(), 3))


@case
def gather_and_scatter(group: dist.ProcessGroup) -> None:
    root = group.size() - 1
    is_root = group.rank() == root
    results = [torch.empty(3, 2, device=DEVICE) for _ in range(group.size())] if is_root else None
    dist.gather(value(group.rank()).to(DEVICE), results, root, group)
    for result, expected in zip(results or [], values(group), strict=is_root):
        equal(result, expected)
    parts = [each.to(DEVICE) for each in values(group)] if is_root else None
    result = torch.empty(3, 2, device=DEVICE)
    dist.scatter(result, parts, root, group)
    equal(result, value(group.rank()))


@case
def reduce_scatter(group: dist.ProcessGroup) -> None:
    whole = sum(values(group, (group.size() * 2, 3)))
    expected = whole.chunk(group.size())[group.rank()]
    mine = value(group.rank(), (group.size() * 2, 3)).to(DEVICE)
    result = torch.empty(2, 3, device=DEVICE)
    dist.reduce_scatter(result, list(mine.chunk(group.size())), group=group)
    equal(result, expected)
    # A part of the second shape is whole lines of a TPU's registers, and has a form of its own there.
    for columns in (3, 128):
        whole = sum(values(group, (group.size() * 2, columns)))
        mine = value(group.rank(), (group.size() * 2, columns)).to(DEVICE)
        for operation, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, group.size())):
            result = torch.empty(2, columns, device=DEVICE)
            dist.reduce_scatter_tensor(result, mine, operation, group)
            equal(result, whole.chunk(group.size())[group.rank()] / divisor)


@case
def views_of_written_tensors_stay_usable(group: dist.ProcessGroup) -> None:
    # As with NCCL, autograd does not count what a collective writes as a change in place.
    leaf = torch.ones(4, 3, device=DEVICE, requires_grad=True)
    part = leaf.split(2)[1]
    dist.broadcast(leaf.detach(), 0, group)
    dist.all_reduce(leaf.detach(), group=group)
    part.sum().backward()
    equal(leaf.grad, torch.tensor([0.0, 0.0, 1.0, 1.0])[:, None].expand(4, 3))


@case
def reduce_scatter_of_uneven_sizes(group: dist.ProcessGroup) -> None:
    rank, rows = group.rank(), [rank + 1 for rank in range(group.size())]
    whole = sum(values(group, (sum(rows), 2)))
    mine = value(rank, (sum(rows), 2)).to(DEVICE)
    for operation, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, group.size())):
        room = torch.zeros(2, rank + 1, device=DEVICE)
        dist.reduce_scatter(room.t(), list(mine.split(rows)), operation, group)
        equal(room.t(), whole.split(rows)[rank] / divisor)


@case
def all_to_all(group: dist.ProcessGroup) -> None:
    rank, size = group.rank(), group.size()
    sent = torch.arange(size * 2.0) + 100 * rank
    received = torch.empty(size * 2, device=DEVICE)
    dist.all_to_all_single(received, sent.to(DEVICE), group=group)
    equal(received, torch.cat([torch.arange(2.0) + 2 * rank + 100 * other for other in range(size)]))
    # Rank r sends s + 1 rows to rank s.
    splits = [other + 1 for other in range(size)]
    rows = value(rank, (sum(splits), 2))
    received = torch.empty(size * (rank + 1), 2, device=DEVICE)
    dist.all_to_all_single(received, rows.to(DEVICE), [rank + 1] * size, splits, group)
    all_rows = values(group, (sum(splits), 2))
    equal(received, torch.cat([each.split(splits)[rank] for each in all_rows]))
    results = [torch.empty(rank + 1, 2, device=DEVICE) for _ in range(size)]
    dist.all_to_all(results, [part.to(DEVICE) for part in rows.split(splits)], group)
    equal(torch.cat(results), torch.cat([each.split(splits)[rank] for each in all_rows]))


@case
def messages(group: dist.ProcessGroup) -> None:
    rank, size = group.rank(), group.size()
    right, left = (rank + 1) % size, (rank - 1) % size
    # More than the network holds by itself: whoever waits for a send before receiving waits for ever.
    sent, received = value(rank, (1 << 20,)).to(DEVICE), torch.empty(1 << 20, device=DEVICE)
    operations = [dist.P2POp(dist.isend, sent, right, group), dist.P2POp(dist.irecv, received, left, group)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    equal(received, value(left, (1 << 20,)))
    works = [dist.isend(value(rank, (2,)).to(DEVICE) + step, right, group) for step in range(5)]
    for step in range(5):
        received = torch.empty(2, device=DEVICE)
        assert dist.recv(received, None if step == 4 else left, group) == left
        equal(received, value(left, (2,)) + step)
    for work in works:
        work.wait()


@case
def barriers(group: dist.ProcessGroup) -> None:
    work = dist.all_reduce(torch.ones(8, device=DEVICE), group=group, async_op=True)
    dist.barrier(group)
    dist.barrier(group, device_ids=[torch.tpu.current_device()])
    # The barrier of the device is behind what the group did before.
    assert work.is_completed()
    assert work.is_success()


@case
def objects_and_cpu_tensors(group: dist.ProcessGroup) -> None:
    found: list[Any] = [None] * group.size()
    dist.all_gather_object(found, {"rank": group.rank()}, group)
    assert found == [{"rank": rank} for rank in range(group.size())]
    on_device, on_cpu = value(group.rank()).to(DEVICE), value(group.rank())
    for _ in range(5):
        works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor in (on_device, on_cpu)]
        for work in works:
            work.wait()
    equal(on_device, on_cpu)


@case
def functional_collectives(group: dist.ProcessGroup) -> None:
    mine = value(group.rank(), (group.size(), 3)).to(DEVICE)
    everyone = values(group, (group.size(), 3))
    equal(functional.all_reduce(mine, "sum", group) + 0, sum(everyone))
    equal(functional.all_gather_tensor(mine, 0, group) + 0, torch.cat(everyone))
    equal(functional.reduce_scatter_tensor(mine, "sum", 0, group) + 0, sum(everyone)[group.rank()][None])
    equal(functional.all_to_all_single(mine, None, None, group) + 0, torch.stack([e[group.rank()] for e in everyone]))

    @torch.compile(fullgraph=True)
    def compiled(tensor: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(tensor * 2, "sum", group).sin()

    torch.testing.assert_close(compiled(mine).cpu(), (2 * sum(everyone)).sin())


@case
def what_is_refused(group: dist.ProcessGroup) -> None:
    size = group.size()
    wrong = (
        (
            ValueError,
            lambda: dist.all_gather([torch.ones(2, device=DEVICE)] * (size + 1), torch.ones(2, device=DEVICE), group),
        ),
        (
            ValueError,
            lambda: dist.all_gather_into_tensor(
                torch.ones(2 * size + 1, device=DEVICE), torch.ones(2, device=DEVICE), group
            ),
        ),
        (
            ValueError,
            lambda: dist.all_to_all_single(
                torch.ones(size + 1, device=DEVICE), torch.ones(size, device=DEVICE), group=group
            ),
        ),
        (
            TypeError,
            lambda: dist.all_gather_into_tensor(
                torch.ones(size, device=DEVICE), torch.ones(1, device=DEVICE).int(), group
            ),
        ),
        (
            ValueError,
            lambda: dist.all_gather(
                [torch.ones(2, device=DEVICE) for _ in range(size)], torch.ones(3, device=DEVICE), group
            ),
        ),
        (TypeError, lambda: dist.all_reduce(torch.ones(2, device=DEVICE), dist.ReduceOp.BAND, group)),
        (RuntimeError, lambda: dist.all_reduce(torch.ones(2, device=DEVICE).to_sparse(), group=group)),
    )
    for kind, call in wrong:
        try:
            call()
        except kind:
            continue
        raise AssertionError("not refused")
    tensor = torch.ones(2, device=DEVICE)
    dist.all_reduce(tensor, group=group)
    equal(tensor, torch.full((2,), float(size)))
