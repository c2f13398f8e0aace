"""segment_reduce (crates/aten/src/ops/reduce/segments.rs): NaN, zeros, negative axes and bad lengths."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tests.helpers import check_refused

ROWS = [[1.0, 1.0], [math.nan, 1.0], [3.0, math.nan], [0.0, 1.0], [3.0, 0.0], [2.0, 0.0]]
LENGTHS = [1, 2, 3, 0]


@pytest.mark.parametrize("reduction", ["sum", "mean", "prod", "max", "min"])
@pytest.mark.parametrize(("axis", "is_flat"), [(0, False), (0, True), (-1, True), (1, False)])
def test_values_and_gradients(reduction: str, axis: int, is_flat: bool, device: torch.device) -> None:
    def results(device: torch.device, initial: float | None, by_lengths: bool) -> tuple[Tensor, Tensor]:
        data, lengths = torch.tensor(ROWS, device=device), torch.tensor(LENGTHS, device=device)
        if is_flat:
            data = data[:, 0]
        elif axis == 1:
            data, lengths = data.T, torch.stack([lengths, lengths.flip(0)])
        data.requires_grad_()
        places = {"lengths": lengths}
        if not by_lengths:
            places = {"offsets": torch.nn.functional.pad(lengths.cumsum(-1), (1, 0))}
        result = torch.segment_reduce(data, reduction, axis=axis, initial=initial, **places)
        weights = torch.arange(1.0, result.numel() + 1, device=device).reshape(result.shape)
        (gradient,) = torch.autograd.grad(result, data, weights)
        return result.detach().cpu(), gradient.cpu()

    for initial in (None, 2.0):
        for by_lengths in (False, True):
            expected = results(torch.device("cpu"), initial, by_lengths)
            torch.testing.assert_close(results(device, initial, by_lengths), expected, equal_nan=True)


@pytest.mark.parametrize("lengths", [[0, 2, 3, 0], [7, -1, 0, 0]])
def test_lengths_that_do_not_fit_are_refused(lengths: list[int], device: torch.device) -> None:
    def program(device: torch.device) -> list[float]:
        places = torch.tensor(lengths, device=device)
        return torch.segment_reduce(torch.arange(6.0, device=device), "sum", lengths=places).tolist()

    check_refused(program, device)
