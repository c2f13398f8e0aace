"""Rows of crates/aten/src/ops/nn/ctc.rs."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "nn.functional.ctc_loss",
)


def problem(device: str) -> tuple[torch.Tensor, ...]:
    draw = torch.Generator().manual_seed(0)
    log_probs = torch.randn(12, 3, 6, generator=draw).log_softmax(-1)
    targets = torch.randint(1, 6, (3, 5), generator=draw)
    given = (log_probs, targets, torch.tensor([12, 10, 4], dtype=torch.int32), torch.tensor([5, 3, 4]))
    return tuple(each.to(device) for each in given)


@pytest.mark.parametrize("zero_infinity", [False, True])
def test_transforms_pass_lengths_as_tensors(zero_infinity: bool) -> None:
    def gradient(device: str) -> torch.Tensor:
        log_probs, *rest = problem(device)
        return torch.func.grad(lambda x: F.ctc_loss(x, *rest, zero_infinity=zero_infinity))(log_probs)

    torch.testing.assert_close(gradient("tpu").cpu(), gradient("cpu"), equal_nan=True)


@pytest.mark.parametrize("which", [2, 3])
def test_lengths_have_to_be_integers(which: int) -> None:
    given = list(problem("tpu"))
    given[which] = given[which].float()
    name = {2: "input_lengths", 3: "target_lengths"}[which]
    with pytest.raises(RuntimeError, match=f"{name} must be integral"):
        torch._ctc_loss(*given)


@pytest.mark.parametrize("wrong", [((12, -1, 4), (5, 3, 4)), ((12, 10, 4), (5, -1, 4)), ((13, 10, 4), (5, 3, 4))])
def test_lengths_that_are_inputs_of_a_program(
    wrong: tuple[tuple[int, ...], tuple[int, ...]], device: torch.device
) -> None:
    """After the first few calls, other lengths share a program."""
    log_probs, targets, *_ = problem("cpu")

    def run(on: torch.device, inputs: tuple[int, ...], lengths: tuple[int, ...]) -> torch.Tensor:
        return F.ctc_loss(log_probs.to(on), targets.to(on), inputs, lengths, reduction="none")

    for middle in range(3, 10):
        for length in (0, 1, 3):
            check(lambda on, n=middle, length=length: run(on, (12, n, 4), (5, length, 4)), device)
    assert "to have value at" in str(check_refused(lambda on: run(on, *wrong), device))
