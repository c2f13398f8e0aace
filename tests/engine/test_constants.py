"""Small results that depend on no data are computed once, without an observable difference."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

Maker = Callable[[int, torch.device], torch.Tensor]

MAKERS: dict[str, Maker] = {
    "ones": lambda n, device: torch.ones(n, device=device),
    "arange": lambda n, device: torch.arange(n, dtype=torch.int32, device=device),
    "full": lambda n, device: torch.full((n, 2), -0.0, dtype=torch.bfloat16, device=device),
    "zero_": lambda n, device: torch.empty(n, dtype=torch.complex64, device=device).zero_(),
    "ones_like": lambda n, device: torch.ones_like(torch.empty(n, dtype=torch.bool, device=device)),
}


def _new_size() -> int:
    return int(torch.randint(3, 500, ()).item())


def _runs(call: Callable[[], object]) -> int:
    torch.tpu.synchronize()
    with torch.tpu.explain() as explanation:
        call()
        torch.tpu.synchronize()
    return len(explanation.runs)


@pytest.mark.parametrize("name", MAKERS)
def test_made_once(device: torch.device, name: str) -> None:
    n, make = _new_size(), MAKERS[name]
    with torch.tpu.set_eager_mode("strict"):
        first = make(n, device)
        assert _runs(lambda: make(n, device)) == 0
        again = make(n, device)
        assert again.data_ptr() != first.data_ptr()
        for each in (first, again):
            expected = make(n, torch.device("cpu"))
            assert torch.equal(each.cpu(), expected)
            if expected.is_floating_point():
                assert torch.equal(each.cpu().signbit(), expected.signbit())


@pytest.mark.parametrize(
    "dtype", [torch.bool, torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64]
)
def test_one_number_needs_no_program(device: torch.device, dtype: torch.dtype) -> None:
    """Small tensors with equal elements are uploaded, so that a new size compiles nothing."""
    n = _new_size()
    torch.tpu.synchronize()
    with torch.tpu.set_eager_mode("strict"):
        before = torch.tpu.cache_stats()["requests"]
        makers: list[Callable[[torch.device], torch.Tensor]] = [
            lambda on: torch.zeros(n, 0, dtype=dtype, device=on),
            lambda on: torch.ones(n, dtype=dtype, device=on),
            lambda on: torch.full((n, 1), 7, dtype=dtype, device=on),
            lambda on: torch.full((n, 1), 9, dtype=dtype, device=on),
            lambda on: torch.empty(3, n, dtype=dtype, device=on).fill_(1.75)[:, 1:],
        ]
        made = [make(device) for make in makers[:4]]
        torch.tpu.synchronize()
        assert torch.tpu.cache_stats()["requests"] == before
        made.append(makers[4](device))
        for value, make in zip(made, makers, strict=True):
            torch.testing.assert_close(value.cpu(), make(torch.device("cpu")), rtol=0, atol=0)


@pytest.mark.parametrize("mode", ["strict", "fused", "debug"])
def test_writing_to_one_leaves_the_others(device: torch.device, mode: str) -> None:
    n = _new_size()
    with torch.tpu.set_eager_mode(mode):
        tensors = [torch.zeros(n, device=device) for _ in range(4)]
        tensors[0].add_(1)
        tensors[1][1:].fill_(2)
        torch.add(tensors[2], 3, out=tensors[2])
        tensors.append(torch.zeros(n, device=device))
        sums = [each.sum().item() for each in tensors]
    assert sums == [n, 2 * (n - 1), 3 * n, 0, 0]


def test_numbers_and_random_states_count(device: torch.device) -> None:
    n = _new_size()
    with torch.tpu.set_eager_mode("strict"):
        for number in (1.5, 2.5, float("nan"), 1.5):
            expected = torch.full((n,), number)
            torch.testing.assert_close(
                torch.full((n,), number, device=device).cpu(), expected, rtol=0, atol=0, equal_nan=True
            )
        assert not torch.equal(torch.rand(n, device=device), torch.rand(n, device=device))
        assert torch.arange(0, n, device=device).sum().item() == n * (n - 1) // 2
        assert torch.arange(1, n + 1, device=device).sum().item() == n * (n + 1) // 2


def test_large_ones_are_not_kept(device: torch.device) -> None:
    n = 2000 + _new_size()
    with torch.tpu.set_eager_mode("strict"):
        torch.ones(n, device=device)
        assert _runs(lambda: torch.ones(n, device=device)) == 1


def _training(device: torch.device, width: int) -> Callable[[], torch.Tensor]:
    model = nn.Sequential(nn.Linear(5, width), nn.LayerNorm(width), nn.Linear(width, 3)).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(4, 5, device=device)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


def test_a_training_that_finds_its_constants_compiles_nothing(device: torch.device) -> None:
    """Its states begin as shared buffers and continue as their own. The programs are the same."""
    width = _new_size()
    with torch.tpu.set_eager_mode("strict"):
        for _ in range(2):
            step = _training(device, width)
            before = torch.tpu.cache_stats()["compiles"]
            for _ in range(3):
                step()
            torch.tpu.synchronize()
            compiled = torch.tpu.cache_stats()["compiles"] - before
    assert compiled == 0


def test_a_joined_step_is_one_run(device: torch.device) -> None:
    """The gradient of a loss begins with ones."""
    step = torch.tpu.compile_step(_training(device, _new_size()))
    for _ in range(3):
        step()
    assert _runs(step) == 1
