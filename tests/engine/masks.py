"""Masks over sizes that change.

No other test has made these calls in its process: a call that was made before has a program of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor
from torchtpu._C import set_sizes

from tests.helpers import assert_same, programs_made

LENGTHS = (29, 18, 23, 27, 20, 25, 17, 22, 28, 19)

# Given: a leaf [4, length, 6]. Masks follow from it, so that both devices have the same ones.
READS: dict[str, Callable[[Tensor], Tensor]] = {
    "rows": lambda x: x[0][x[0, :, 0] > 0],
    "elements": lambda x: x[x > 0.3],
    "tokens": lambda x: x[x[..., 0] > 0],
    "merged tokens": lambda x: x.flatten(0, 1)[(x[..., 0] > 0).flatten()],
    "merged results": lambda x: (x * 2).flatten(0, 1)[(x[..., 0] > 0).flatten()],
    "columns": lambda x: x[:, x[0, :, 1] > 0],
    "batches": lambda x: x[x.sum((1, 2)) > -20].sum(0),
    "some batches": lambda x: x[(torch.arange(4) % 2 == x.shape[1] % 2).to(x.device)].tanh(),
    "middle": lambda x: x.transpose(0, 1)[:, (torch.arange(4) > 0).to(x.device)].sum(1),
    "last": lambda x: x[..., (torch.arange(6) > x.shape[1] % 3).to(x.device)] * 2,
    "transposed": lambda x: x[0].t()[:, x[0, :, 2] > 0],
    "mask and index": lambda x: x[1][x[1, :, 0] > 0, torch.tensor(3, device=x.device)],
    "index and mask": lambda x: x[torch.tensor([[2], [0]], device=x.device), x[0, :, 0] > 0],
    "two masks": lambda x: x[1][x[1, :, 0] > x[1, :, 0].max() - 1e-3, (x[1, 0] > x[1, 0].min()).roll(1)],
    "no element": lambda x: x[0][x[0, :, 0] > 99],
    "all": lambda x: x[0][x[0, :, 0] < 99],
}


def write(change: Callable[[Tensor, Tensor], None]) -> Callable[[Tensor], Tensor]:
    def program(x: Tensor) -> Tensor:
        y = x * 1.5
        change(y, x)
        return y

    return program


def put(y: Tensor, indices: tuple[Tensor | slice, ...], values: Tensor | float) -> None:
    y[indices] = values


def labelled(y: Tensor, x: Tensor) -> None:
    """The class of each chosen row, as a detector has it: one index beside the mask, of another mask's elements."""
    chosen = x[0, :, 0] > 0
    labels = (torch.arange(x.shape[1]) % 6).to(x.device)
    y[0][chosen, labels[chosen]] = 1.0


WRITES: dict[str, Callable[[Tensor], Tensor]] = {
    "number": write(lambda y, x: put(y, (x > 0.3,), 2.0)),
    "number to rows": write(lambda y, x: put(y[0], (x[0, :, 0] > 0,), -1.0)),
    "row": write(lambda y, x: put(y, (x[..., 0] > 0,), x[0, 0].detach())),
    "rows of itself": write(lambda y, x: put(y, (x[..., 0] > 0,), x[x[..., 0] > 0] * 3)),
    "values": write(lambda y, x: put(y, (x > 0.3,), x[x > 0.3] * 3)),
    "merged rows": write(
        lambda y, x: put(y.view(-1, 6), ((x[..., 0] > 0).view(-1),), x.view(-1, 6)[(x[..., 0] > 0).view(-1)] * 3)
    ),
    "columns": write(lambda y, x: put(y, (slice(None), x[0, :, 1] > 0), x[:, x[0, :, 1] > 0] * 3)),
    "labels": write(labelled),
}
PROGRAMS = READS | WRITES


def step(program: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    x = x.detach().requires_grad_()
    result = program(x)
    loss = (result * (result.detach() * 0.1).cos()).sum()
    return [result.detach(), *torch.autograd.grad(loss, x)]


def check_mask(name: str, device: torch.device, mode: str) -> None:
    """Results and gradients equal the CPU's. After the fifth length no program is made."""
    torch.manual_seed(0)
    made: list[int] = []
    for length in LENGTHS:
        x = torch.randn(4, length, 6)
        on_device = x.to(device)
        before = programs_made()
        results = [value.cpu() for value in step(PROGRAMS[name], on_device)]
        made.append(programs_made() - before)
        assert_same(results, step(PROGRAMS[name], x))
    # In Fused the chunks of the first lengths end elsewhere.
    assert sum(made[5:]) <= (1 if mode == "fused" else 0), (name, made)


if __name__ == "__main__":
    torch.tpu.set_eager_mode(sys.argv[2])
    set_sizes("dynamic")
    check_mask(sys.argv[1], torch.device("tpu"), sys.argv[2])
