"""Slices and new tensors of changing sizes: from the third size on, programs take the sizes as inputs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.engine.draws import LENGTHS
from tests.helpers import assert_same, check_module, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")


def check_slices(function: Callable[[Tensor, int], Tensor], device: torch.device) -> None:
    """The function's results equal the CPU's, and after the third length it makes no program."""
    whole = torch.randn(64, 4)
    on_device, made = whole.to(device), []
    for length in LENGTHS:
        before = programs_made()
        assert_same(function(on_device, length), function(whole, length))
        made.append(programs_made() - before)
    assert not any(made[3:]), made


def write_to_a_slice(x: Tensor, n: int) -> Tensor:
    y = x * 1
    y[n : 2 * n] = 3.0
    y[:n].mul_(2)
    return y


def write_at_the_end(x: Tensor, n: int) -> Tensor:
    """The capacity of the size reaches behind the tensor."""
    y = x * 1
    y[64 - n :].mul_(2)
    y.t()[:, 63 - n : 63].fill_(1.0)
    y[3:].copy_(y[3:] + 1)
    return y


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x[:n] * 2,
        lambda x, n: x[n:].sum(0),
        lambda x, n: x[n : 2 * n].softmax(0),
        lambda x, n: x[n : n + n // 2 + 2].amax(0),
        lambda x, n: x.t().narrow(1, 3, n).cumsum(1),
        lambda x, n: torch.cat([part * 2 for part in x.split([n, 64 - n])]),
        lambda x, n: (x[0].expand(n, 4) * 3).sum(0),
        lambda x, n: x.view(4, 16, 4)[:, :n].mean(1),
        write_to_a_slice,
        write_at_the_end,
    ],
    ids=["head", "tail", "both", "length", "narrow", "split", "expand", "inner", "write", "write at the end"],
)
def test_slices(device: torch.device, mode: str, function: Callable[[Tensor, int], Tensor]) -> None:
    torch.tpu.set_eager_mode(mode)
    check_slices(function, device)


def test_two_sizes_have_programs_for_both_together(device: torch.device) -> None:
    """Two small sizes get small capacities. Then a small and a large one have the programs of two large ones."""
    torch.tpu.set_eager_mode("strict")
    whole = torch.randn(80, 90)
    on_device, made = whole.to(device), []
    for rows, columns in [(40, 60), (33, 50), (48, 40), (2, 3), (3, 2), (14, 29), (5, 46), (13, 14)]:
        before = programs_made()
        assert_same(on_device[:rows, :columns] * 3, whole[:rows, :columns] * 3)
        made.append(programs_made() - before)
    assert made[3]
    assert not any(made[4:]), made


@pytest.mark.parametrize("write", [lambda part: part.fill_(1.0), lambda part: part.mul_(2)], ids=["fill", "mul"])
def test_a_write_to_a_part_copies_nothing_else(device: torch.device, write: Callable[[Tensor], Tensor]) -> None:
    """A copy of the 256 MB would take some 100 ms."""
    torch.tpu.set_eager_mode("strict")
    x = torch.zeros(64, 1 << 20, device=device)
    seconds = []
    for length in range(40, 60):
        start = time.perf_counter()
        write(x[3, 7 : 7 + length])
        torch.tpu.synchronize()
        seconds.append(time.perf_counter() - start)
    assert min(seconds[5:]) < 0.01


@pytest.mark.parametrize("mode", ["strict", "fused", "debug"])
@pytest.mark.parametrize(
    "write",
    [
        lambda view: view.fill_(-3.0),
        lambda view: view.zero_(),
        lambda view: view.triu_(1),
        lambda view: view.tril_(0),
        lambda view: view.mul_(2),
        lambda view: view.copy_(torch.arange(view.shape[1], dtype=torch.float32).to(view.device)),
        lambda view: view.clamp_(min=0),
        lambda view: view.neg_(),
    ],
    ids=["fill", "zero", "triu", "tril", "mul", "copy", "clamp", "neg"],
)
def test_writes_to_a_part_of_any_row(device: torch.device, mode: str, write: Callable[[Tensor], Tensor]) -> None:
    """Which row is written is an input of the program, as the length is. All other elements stay."""
    torch.tpu.set_eager_mode(mode)
    whole, made = torch.randn(9, 64), []
    for row, length in zip((2, 3, 5, 1, 8, 4, 7), LENGTHS, strict=True):
        before = programs_made()
        results = []
        for x in (whole.to(device), whole.clone()):
            write(x[row : row + 1, row : row + length])
            results.append(x)
        assert_same(*results)
        made.append(programs_made() - before)
    assert not any(made[3:]), made


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_new_tensors(mode: str) -> None:
    check_module("tests.engine.new_tensors", mode)


def test_few_sizes_have_programs_of_their_own(device: torch.device) -> None:
    whole, made = torch.randn(64, 5), []
    x = whole.to(device)
    for length in (5, 9, 5, 9):
        before = programs_made()
        assert_same(x[:length] * 2, whole[:length] * 2)
        made.append(programs_made() - before)
    assert made == [1, 1, 0, 0]


def test_slices_of_different_tensors_keep_their_programs(device: torch.device) -> None:
    """Parts of parameters of different sizes do not get padding."""
    padded = torch.tpu.op_stats()["padded"]
    wholes = [torch.randn(size, 4) for size in (10, 20, 30, 40)]
    for whole in wholes:
        x = whole.to(device)
        assert_same(x[: len(whole) // 2] * 2, whole[: len(whole) // 2] * 2)
    assert torch.tpu.op_stats()["padded"] == padded


def test_new_tensors_that_stay_are_exact(device: torch.device) -> None:
    set_sizes("all")
    kept = [torch.zeros(size, 17, device=device) for size in LENGTHS]
    unpadded = torch.tpu.op_stats()["unpadded"]
    for each in kept:
        assert_same(each, torch.zeros(each.shape))
    assert torch.tpu.op_stats()["unpadded"] == unpadded


def test_random_numbers_are_those_of_exact_programs(tmp_path: Path) -> None:
    found = {}
    for sizes in ("all", "static"):
        file = tmp_path / f"{sizes}.pt"
        check_module("tests.engine.draws", str(file), sizes)
        found[sizes] = torch.load(file)
    (drawn, made), (exact, _) = found["all"], found["static"]
    assert not any(sum(each[3:]) for each in made.values()), made
    for name, results in drawn.items():
        assert all(torch.equal(one, other) for one, other in zip(results, exact[name], strict=True)), name


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_the_gradient_of_a_slice_of_a_longer_result(device: torch.device, mode: str) -> None:
    """Its size is that of an argument and a constant. A causal convolution has it."""
    torch.tpu.set_eager_mode(mode)
    weight, made = torch.randn(6, 1, 4), []
    given = {"cpu": weight.clone(), "tpu": weight.to(device)}

    def gradients(x: Tensor) -> list[Tensor]:
        x, kernel = x.clone().requires_grad_(), given[x.device.type].detach().requires_grad_()
        y = torch.nn.functional.conv1d(x, kernel, padding=3, groups=6)[..., : x.shape[2]]
        return list(torch.autograd.grad(y.sin().sum(), [x, kernel]))

    for length in (12, 19, 30, 17, 26, 23, 21, 19, 14):
        x, before = torch.randn(2, 6, length), programs_made()
        for actual, expected in zip(gradients(x.to(device)), gradients(x), strict=True):
            torch.testing.assert_close(actual.cpu(), expected, rtol=1e-4, atol=1e-4)
        made.append(programs_made() - before)
    assert not any(made[4:]), made


def test_the_gradient_of_a_part_of_a_table_is_exact(device: torch.device) -> None:
    """The size of the table does not follow that of the part."""
    tables = [torch.randn(size, 4) for size in (40, 50, 64)]
    given = {"cpu": tables, "tpu": [table.to(device) for table in tables]}

    def gradients(x: Tensor) -> list[Tensor]:
        wholes = [table.detach().requires_grad_() for table in given[x.device.type]]
        y = sum((whole[: len(x)] * x).sum() for whole in wholes)
        assert isinstance(y, Tensor)
        return list(torch.autograd.grad(y, wholes))

    for length in (12, 19, 30, 17, 26, 22, 32):
        x = torch.randn(length, 4)
        actual = gradients(x.to(device))
        unpadded = torch.tpu.op_stats()["unpadded"]
        for one, other in zip(actual, gradients(x), strict=True):
            torch.testing.assert_close(one.cpu(), other)
        assert torch.tpu.op_stats()["unpadded"] == unpadded, length
