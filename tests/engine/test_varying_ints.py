"""Numbers that change from call to call do not compile a program for each value."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers import assert_same, check, check_refused, programs_made

STEPS = 12


def backward(of: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    of(x).square().sum().backward()
    assert x.grad is not None
    return x.grad


def likelihood(x: Tensor, i: int) -> Tensor:
    """The gradient of a CTC loss whose lengths are those of a batch."""
    logits = x.reshape(14, 4, 5)
    targets = torch.tensor([[1, 2, 3, 1], [2, 2, 4, 1], [4, 3, 2, 1], [1, 1, 2, 3]], device=x.device)
    inputs, lengths = [14, 14 - i % 3, 12, 13], [4, i % 5, 1 + i % 3, 2]
    return backward(lambda x: F.ctc_loss(x.log_softmax(-1), targets, inputs, lengths, reduction="none"), logits)


def joined_targets(x: Tensor, i: int) -> Tensor:
    """The same, where targets follow one another in a vector."""
    logits = x.reshape(14, 4, 5)
    targets = torch.tensor([1, 2, 3, 1, 2, 4, 4, 3], device=x.device)
    lengths = [4, 1 + i % 2, 2 - i % 2, 1]
    return backward(lambda x: F.ctc_loss(x.log_softmax(-1), targets, [14] * 4, lengths, reduction="none"), logits)


def bags(x: Tensor, i: int) -> Tensor:
    words, offsets = torch.arange(24, device=x.device) % 13, torch.tensor([0, 5, 9], device=x.device)
    return backward(lambda x: F.embedding_bag(words, x, offsets, padding_idx=i % 13, mode="sum"), x.reshape(40, 7))


def classes(x: Tensor, i: int) -> Tensor:
    target = torch.arange(40, device=x.device) % 7
    return backward(lambda x: F.cross_entropy(x, target, ignore_index=i % 7, reduction="sum"), x.reshape(40, 7))


def distances(x: Tensor, i: int) -> Tensor:
    return backward(lambda x: torch.cdist(x, x[:5] + 1, p=1.3 + i / 5), x.reshape(40, 7))


CALLS: dict[str, Callable[[Tensor, int], Tensor]] = {
    "arange": lambda x, i: torch.arange(i, i + 8, device=x.device),
    "arange from below": lambda x, i: torch.arange(i - 20, i - 12, device=x.device, dtype=torch.int32),
    "arange of floats": lambda x, i: torch.arange(3 * i, 3 * i + 15, 2, device=x.device, dtype=torch.float32),
    "arange backwards": lambda x, i: torch.arange(8 * i + 8, 0, -i - 1, device=x.device),
    "padding": lambda x, i: F.pad(x.view(40, 7), (i % 8, 9 - i % 8, -(i % 5), i % 5 - 4)),
    "roll": lambda x, i: x.view(40, 7).roll(3 - i, 0) + x.view(40, 7).roll((i, 2 * i), (1, -2)),
    "roll of all": lambda x, i: x.view(40, 7).roll(29 * i),
    "zero points": lambda x, i: torch.fake_quantize_per_tensor_affine(x, 0.1 + i / 100, i, 0, 255),
    "select": lambda x, i: backward(lambda x: x.view(40, 7)[i], x),
    "select of columns": lambda x, i: backward(lambda x: x.view(7, 40)[:, i], x),
    "slice": lambda x, i: backward(lambda x: x.view(40, 7)[i : i + 4], x),
    "slice of columns": lambda x, i: backward(lambda x: x.view(7, 40)[:, i : i + 2], x),
    "padding of an embedding": lambda x, i: backward(
        lambda x: F.embedding(torch.arange(24, device=x.device) % 13, x, padding_idx=i % 13), x.reshape(40, 7)
    ),
    "padding of bags": bags,
    "classes to ignore": classes,
    "lengths of CTC": likelihood,
    "power": lambda x, i: backward(lambda x: x.abs() ** (1.1 + i / 7), x),
    "integer power": lambda x, i: x ** (4 + i),
    "power of integers": lambda x, i: x.round().int() ** (4 + i),
    "powers of a list": lambda x, i: torch.stack(torch._foreach_pow([x.abs(), x.exp()], 1.1 + i / 7)),
    "is in": lambda x, i: torch.isin(x.round(), i - 5),
    "is not in": lambda x, i: torch.isin(x.round().int(), i - 5.5, invert=True),
    "a number is in": lambda x, i: torch.isin(i - 5, x.round().int()),
    "decimals": lambda x, i: (x * 1000).round(decimals=i - 5),
    "decimals of float64": lambda x, i: (x.double() * 1000).round(decimals=15 * (i - 5)),
    "norm": lambda x, i: backward(lambda x: x.view(40, 7).norm(2.1 + i / 3, dim=1), x),
    "distances": distances,
    "distances within": lambda x, i: torch.pdist(x.view(40, 7), p=1.3 + i / 5),
    "renorm": lambda x, i: x.view(40, 7).renorm(1.2 + i / 9, 0, 1.0),
    "select_scatter": lambda x, i: x.view(40, 7).select_scatter(x[:7], 0, i),
    "slice_scatter": lambda x, i: x.view(40, 7).slice_scatter(x[:28].view(4, 7), 0, i, i + 4),
    "lengths of joined targets": joined_targets,
}


@pytest.mark.usefixtures("constant_sizes")
@pytest.mark.parametrize("name", CALLS)
def test_ints_become_inputs(name: str, device: torch.device, mode: str) -> None:
    """The results equal the CPU's, and after the first few values no program is made."""
    x = torch.randn(280, generator=torch.Generator().manual_seed(1))
    mine = x.to(device)
    made = []
    for i in range(1, STEPS):
        before = programs_made()
        actual = CALLS[name](mine, i).cpu()
        made.append(programs_made() - before)
        torch.testing.assert_close(actual, CALLS[name](x, i), rtol=1e-3, atol=1e-4)
    assert sum(made[6:]) == 0, made


def drawn(low: int, high: int, device: torch.device) -> Tensor:
    torch.manual_seed(5)
    return torch.randint(low, high, (500,), device=device)


def test_draws_from_ranges_that_change(device: torch.device) -> None:
    """The numbers are the same whether the range is a constant of the program or an input."""
    ranges = [(0, 7), (3, 64), (-9, 9), (0, 1), (100, 100 + (1 << 20)), (5, 1000), (-70, -3), (0, 1 << 16)]
    first = {}
    with torch.tpu.set_eager_mode("strict"):
        for _ in range(2):
            for low, high in ranges:
                numbers = drawn(low, high, device).cpu()
                assert low <= int(numbers.min())
                assert int(numbers.max()) < high
                assert torch.equal(first.setdefault((low, high), numbers), numbers)
        before = programs_made()
        for high in range(1001, 1010):
            numbers = drawn(0, high, device).cpu()
        assert programs_made() == before
    # All of a range of its own program: the fifth and later ranges share one.
    bits = drawn(0, 1 << 20, device).cpu()
    assert torch.equal(drawn(0, 1 << 16, device).cpu(), bits & 0xFFFF)


def test_what_is_refused_for_constants_is_refused_for_inputs(device: torch.device, mode: str) -> None:
    for i in range(8):
        torch.arange(i, i + 3, device=device), torch.randint(i, i + 3, (2,), device=device)
    with pytest.raises(RuntimeError, match="upper bound and lower bound inconsistent with step sign"):
        torch.arange(5, 3, device=device)
    with pytest.raises(RuntimeError, match="from to be less than|to be less than|from < to|random_ expects"):
        torch.randint(5, 3, (2,), device=device)
    assert_same(torch.arange(5, 5, device=device).cpu(), torch.arange(5, 5))
    assert_same(torch.arange(2**40, 2**40 + 3, device=device).cpu(), torch.arange(2**40, 2**40 + 3))


def test_what_numbers_as_inputs_refuse(device: torch.device, mode: str) -> None:
    x = torch.arange(280.0).view(40, 7)
    for i in range(8):
        x.to(device).select_scatter(torch.ones(7, device=device), 0, i)
        x.to(device).slice_scatter(torch.ones(2, 7, device=device), 0, i, i + 2)
        torch.cdist(x.to(device), x.to(device), p=1.5 + i), x.to(device).renorm(1.5 + i, 0, 1.0)
        x.to(device).int() ** (5 + i), torch.empty(0, device=device).norm(3.5 + i)
    check_refused(lambda d: x.to(d).select_scatter(torch.ones(7, device=d), 0, 40), device)
    check_refused(lambda d: x.to(d).slice_scatter(torch.ones(2, 7, device=d), 0, 39, 41), device)
    check_refused(lambda d: torch.cdist(x.to(d), x.to(d), p=-1.5), device)
    check_refused(lambda d: x.to(d).renorm(-1.5, 0, 1.0), device)
    check_refused(lambda d: x.to(d).renorm(1.5, 0, -1.0), device)
    check_refused(lambda d: x.to(d).int() ** -5, device)
    check_refused(lambda d: torch.empty(0, device=d).norm(-3.5, dim=0), device)
    check(lambda d: x.to(d).select_scatter(torch.ones(7, device=d), 0, -1), device)
    check(lambda d: x.to(d).slice_scatter(torch.ones(1, 7, device=d), 0, 39, 50), device)
