"""Programs at changing sizes: after a few sizes nothing is compiled, and values and gradients are the CPU's."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from tests.helpers import programs_made

SETTLED = 5

# The largest come early: each capacity is a program.
SIZES = (30, 23, 28, 19, 26, 21, 29, 18, 25)


def step(program: Callable[[Tensor], Tensor], x: Tensor) -> tuple[Tensor, Tensor]:
    x.requires_grad_()
    result = program(x)
    loss = (result * (result.detach() * 0.1).cos()).sum()
    (gradient,) = torch.autograd.grad(loss, x)
    return result.detach(), gradient


def check_that_it_settles(
    program: Callable[[Tensor], Tensor],
    device: torch.device,
    inputs: Iterable[Tensor],
    settled: int = SETTLED,
    rtol: float = 1e-4,
) -> None:
    """Runs `program` and its gradient on each input, uploaded at one line. After `settled` inputs, neither this nor a
    read of the results makes a program."""
    for number, x in enumerate(inputs):
        before = programs_made()
        on_device = step(program, x.to(device))
        results = [value.cpu() for value in on_device]
        made = programs_made() - before
        for actual, wanted in zip(results, step(program, x), strict=True):
            torch.testing.assert_close(actual, wanted, rtol=rtol, atol=0.1 * rtol * float(wanted.abs().max()))
        assert number < settled or not made, f"{made} programs for {tuple(x.shape)}"
