"""Ints that a compiled function takes: with `dynamic=True` they are symbols of its graph, as sizes are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

Function = Callable[..., Tensor]


def slice_gradient(x: Tensor, *part: int) -> Tensor:
    x = x.detach().requires_grad_()
    return torch.autograd.grad((x[slice(*part)] ** 2).sum(), x)[0]


FUNCTIONS: dict[str, tuple[Function, tuple[tuple[int, ...], ...]]] = {
    "slice in steps": (lambda x, *part: x[slice(*part)] * 2, ((2, 18, 2), (3, 17, 3))),
    "slice in steps alone": (lambda x, step: x[::step].flip(0), ((2,), (5,))),
    "gradient of a slice in steps": (slice_gradient, ((2, 18, 2), (3, 17, 3))),
    "rows written in steps": (
        lambda x, *part: x.index_copy(0, torch.arange(*part, device=x.device), x[:7]),
        ((0, 14, 2), (2, 9, 1)),
    ),
    "windows": (lambda x, size, step: x.unfold(0, size, step).sum(-1), ((4, 2), (5, 3))),
    "roll": (lambda x, by: x.roll(by, 0) * 2, ((2,), (3,))),
    "part": (lambda x, start, size: x.narrow(0, start, size) * 2, ((2, 4), (3, 5))),
    "parts": (lambda x, size: torch.cat([part.cumsum(0) for part in x.split(size)]), ((3,), (7,))),
    "row": (lambda x, row: x.select(0, row) * 2, ((2,), (-7,))),
    "padding": (lambda x, before, after: F.pad(x, (before, after)).cumsum(1), ((2, 3), (4, 2))),
    "mean of windows": (lambda x, size, step: F.avg_pool1d(x[None], size, step), ((3, 2), (4, 3))),
    "largest": (lambda x, count: x.topk(count, 0)[0], ((2,), (7,))),
    "repeat": (lambda x, times: x.repeat_interleave(times, 0) * 2, ((2,), (3,))),
    "resize": (lambda x, size: F.interpolate(x[None], size=size, mode="linear"), ((5,), (30,))),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_ints(name: str, device: torch.device) -> None:
    function, calls = FUNCTIONS[name]
    compiled = torch.compile(function, dynamic=True)
    x = torch.arange(240.0).reshape(20, 12)
    for ints in calls:
        torch.testing.assert_close(compiled(x.to(device), *ints).cpu(), function(x, *ints))


@pytest.mark.parametrize("dim", [0, 1])
def test_slice_scatter_in_steps(dim: int, device: torch.device) -> None:
    """The step was taken to be 1."""
    compiled = torch.compile(lambda x, src, *ints: torch.slice_scatter(x, src, *ints), dynamic=True)
    x = torch.arange(240.0).reshape(12, 20)
    for start, end, step in ((2, 12, 2), (0, 12, 3), (4, 12, 4)):
        src = -torch.ones_like(x).narrow(dim, 0, (end - start) // step)
        actual = compiled(x.to(device), src.to(device), dim, start, end, step)
        assert torch.equal(actual.cpu(), torch.slice_scatter(x, src, dim, start, end, step))
