"""Many tensors that are joined: if their number changes, what is computed from the result has one program."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import assert_same, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

NUMBERS = [6, 9, 7, 12, 11, 14, 13, 10, 8, 15]


def computed(y: Tensor) -> tuple[Tensor, ...]:
    return (
        (y * 2).sum(0),
        y.transpose(0, 1).contiguous() + 1,
        y.flatten(0, 1).softmax(0),
        y.amax(),
        y[-1] * 1,
        y[1:].prod(0),
    )


def check_joins(join: Callable[[list[Tensor]], Tensor], device: torch.device) -> None:
    """Results equal the CPU's. In the end each new number makes the program of `cat` and no other. In a process without
    other tensors this begins with the fourth one."""
    made = []
    for number in NUMBERS:
        parts = [torch.rand(4, 3) + 0.5 for _ in range(number)]
        on_device = [part.to(device) for part in parts]
        before = programs_made()
        for actual, expected in zip(computed(join(on_device)), computed(join(parts)), strict=True):
            torch.testing.assert_close(actual.cpu(), expected)
        made.append(programs_made() - before)
    assert max(made[-3:]) <= 1, made
    read = torch.tpu.op_stats()["unpadded"]
    torch.testing.assert_close(join(on_device).cpu(), join(parts))
    assert torch.tpu.op_stats()["unpadded"] > read, "the result has no padding"


@pytest.mark.parametrize(
    "join",
    [
        torch.stack,
        lambda parts: torch.cat(parts).view(-1, 4, 3),
        lambda parts: torch.stack(parts, 1).transpose(0, 1),
        lambda parts: torch.stack([part.sum() for part in parts]).view(-1, 1, 1),
    ],
    ids=["stack", "cat", "inner", "scalars"],
)
def test_the_number_of_joined_tensors(device: torch.device, join: Callable[[list[Tensor]], Tensor]) -> None:
    torch.tpu.set_eager_mode("strict")
    check_joins(join, device)


def test_what_is_kept_stays_exact(device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    before, kept = torch.tpu.op_stats(), []
    for number in [*NUMBERS, 16, 17, 18, 19, 20]:
        kept.append(torch.stack([torch.ones(2, device=device) for _ in range(number)]))
    for number, tensor in zip(NUMBERS, kept, strict=False):
        assert_same(tensor.cpu() + 1, torch.full((number, 2), 2.0))
    # Only the numbers before it shows that the first tensors stay may have padding.
    assert torch.tpu.op_stats()["unpadded"] - before["unpadded"] <= 1


def test_joins_of_few_tensors_are_no_lengths(device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    before = torch.tpu.op_stats()["unpadded"]
    for number in (2, 3, 4, 2, 3, 4):
        assert_same(torch.stack([torch.ones(2, device=device)] * number).cpu(), torch.ones(number, 2))
    assert torch.tpu.op_stats()["unpadded"] == before


def test_a_recurrent_network_of_changing_lengths(device: torch.device) -> None:
    """Each time step runs the same programs, and so does what follows the loop."""
    torch.tpu.set_eager_mode("strict")
    torch.manual_seed(0)
    expected = nn.ModuleList([nn.Embedding(11, 8), nn.LSTM(8, 8, batch_first=True), nn.Linear(8, 5)])
    actual = copy.deepcopy(expected).to(device)

    def step(model: nn.ModuleList, tokens: Tensor, targets: Tensor) -> Tensor:
        model.zero_grad()
        loss = nn.functional.cross_entropy(model[2](model[1](model[0](tokens))[0]).flatten(0, 1), targets.flatten())
        loss.backward()
        return loss

    made = {}
    for length in (6, 9, 7, 12, 11, 14, 13, 15, 11, 14):
        tokens, targets = torch.randint(11, (4, length)), torch.randint(5, (4, length))
        loss = step(expected, tokens, targets)
        before = programs_made()
        torch.testing.assert_close(step(actual, tokens.to(device), targets.to(device)).cpu(), loss.detach())
        for ours, theirs in zip(actual.parameters(), expected.parameters(), strict=True):
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)
        made.setdefault(length, []).append(programs_made() - before)
    # The two cats of the gates' gradients and of the outputs.
    assert max(made[13] + made[15]) <= 2, made
    assert made[11][1] == made[14][1] == 0, made
