"""Many tensors that are joined: if their number changes, what is computed from the result has one program."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from tests.engine import joins
from tests.helpers import assert_same, check_module, programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")


@pytest.mark.parametrize("join", joins.JOINS)
def test_the_number_of_joined_tensors(join: str) -> None:
    check_module("tests.engine.joins", join)


def test_what_is_kept_stays_exact(device: torch.device) -> None:
    torch.tpu.set_eager_mode("strict")
    before, kept = torch.tpu.op_stats(), []
    for number in [*joins.NUMBERS, 15, 16, 17, 18, 19, 20]:
        kept.append(torch.stack([torch.ones(2, device=device) for _ in range(number)]))
    for number, tensor in zip(joins.NUMBERS, kept, strict=False):
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


def test_a_loss_of_exact_predictions(device: torch.device) -> None:
    """The targets have padding, and their two dimensions are one of the predictions."""
    torch.tpu.set_eager_mode("strict")
    made = []
    for length in (6, 9, 7, 12, 11, 14):
        targets = torch.randint(5, (4, length))
        on_device = targets.to(device).flatten()
        predictions = torch.arange(20.0 * length, device=device).view(4 * length, 5).sin()
        with torch.tpu.explain() as explanation:
            loss = nn.functional.nll_loss(predictions, on_device)
        torch.testing.assert_close(loss.cpu(), nn.functional.nll_loss(predictions.cpu(), targets.flatten()))
        assert "because" not in str(explanation).partition("compiles:")[2]
        made.append(len(explanation.compiles))
    assert not any(made[3:]), made
