"""Rows of crates/aten/src/ops/nn/forced_align.rs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import programs_made

# `make test` installs it. torchtpu does not need it.
F = pytest.importorskip("torchaudio.functional", reason="torchaudio is not installed: pip install torchaudio")


def problem(times: int, labels: int, classes: int, blank: int = 0) -> tuple[Tensor, Tensor]:
    log_probs = torch.randn(1, times, classes).log_softmax(-1)
    targets = torch.randint(0, classes - 1, (1, labels))
    return log_probs, targets + (targets >= blank)


@pytest.mark.parametrize("blank", [0, 2])
@pytest.mark.parametrize("sizes", [(4, 2, 5), (20, 6, 4), (1, 1, 3), (40, 5, 30)])
def test_forced_align(sizes: tuple[int, int, int], blank: int, device: torch.device, mode: str) -> None:
    for dtype, index in [(torch.float32, torch.int64), (torch.float64, torch.int32), (torch.float16, torch.int64)]:
        log_probs, targets = problem(*sizes, blank)
        log_probs, targets = log_probs.to(dtype), targets.to(index)
        expected = F.forced_align(log_probs, targets, blank=blank)
        path, scores = (each.cpu() for each in F.forced_align(log_probs.to(device), targets.to(device), blank=blank))
        assert (path.dtype, path.shape) == (expected[0].dtype, expected[0].shape)
        assert (scores.dtype, scores.shape) == (expected[1].dtype, expected[1].shape)
        if dtype == torch.float16:
            # The CPU adds in float16, so another path may be the better one.
            assert scores.double().sum() >= expected[1].double().sum() - 1e-3
            assert path.unique_consecutive().masked_select(path.unique_consecutive() != blank).numel() <= sizes[1]
        else:
            assert torch.equal(path, expected[0])
            assert torch.equal(scores, expected[1])


@pytest.mark.parametrize("repeats", [0, 1, 3])
def test_equal_labels_have_a_blank_between(repeats: int, device: torch.device) -> None:
    targets = torch.tensor([[1] * (repeats + 1) + [2]])
    log_probs, _ = problem(targets.shape[1] + repeats, 1, 4)
    path, _ = F.forced_align(log_probs.to(device), targets.to(device))
    assert path.tolist() == [[1, 0] * repeats + [1, 2]]
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        F.forced_align(log_probs[:, 1:], targets)
    with pytest.raises(RuntimeError, match="targets length is too long for CTC"):
        F.forced_align(log_probs[:, 1:].to(device), targets.to(device))[0].cpu()


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_forced_align_of_sizes_that_change(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    made = []
    for times, labels in [(20, 5), (17, 4), (30, 7), (25, 6), (22, 3), (28, 7), (31, 5)]:
        given = problem(times, labels, 8)
        before = programs_made()
        path, scores = (each.cpu() for each in F.forced_align(*(each.to(device) for each in given)))
        made.append(programs_made() - before)
        expected = F.forced_align(*given)
        assert torch.equal(path, expected[0])
        assert torch.equal(scores, expected[1])
    assert sum(made[3:]) == 0, made


REFUSED = {
    "log_probs must be 3-D": lambda x, y: (x[0], y),
    "targets must be 2-D": lambda x, y: (x, y[0]),
    "log_probs must be float64, float32 or float16": lambda x, y: (x.bfloat16(), y),
    "The batch dimension for log_probs must be 1": lambda x, y: (x.expand(2, -1, -1).contiguous(), y),
}


@pytest.mark.parametrize("message", REFUSED)
def test_forced_align_is_refused(message: str, device: torch.device) -> None:
    log_probs, targets = REFUSED[message](*problem(8, 3, 5))
    lengths = torch.tensor([8]), torch.tensor([3])
    with pytest.raises(RuntimeError, match=message):
        F.forced_align(log_probs, targets, *lengths)
    with pytest.raises(RuntimeError, match=message):
        F.forced_align(log_probs.to(device), targets.to(device), *(each.to(device) for each in lengths))


@pytest.mark.parametrize("which", ["input", "target"])
def test_lengths_are_sizes(which: str, device: torch.device, mode: str) -> None:
    log_probs, targets = problem(8, 3, 5)
    lengths = torch.tensor([7 if which == "input" else 8]), torch.tensor([2 if which == "target" else 3])
    with pytest.raises(RuntimeError, match=f"{which} length mismatch"):
        F.forced_align(log_probs, targets, *lengths)
    with pytest.raises(RuntimeError, match=f"{which} length mismatch"):
        F.forced_align(log_probs.to(device), targets.to(device), *(each.to(device) for each in lengths))[0].cpu()
