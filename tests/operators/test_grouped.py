"""Grouped matrix products: values and gradients, in one program, without a read of where groups end."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import grouped_mm

from tests.helpers import assert_same

ENDS = [10, 10, 40, 64]


def tensors(device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    x, matrices = torch.randn(64, 16).to(device), torch.randn(4, 16, 8).to(device)
    return x.requires_grad_(), matrices.requires_grad_(), torch.tensor(ENDS, dtype=torch.int32).to(device)


def test_values_and_gradients(device: torch.device, mode: str) -> None:
    def run(device: torch.device | str) -> list[torch.Tensor]:
        x, matrices, ends = tensors(device)
        result = grouped_mm(x, matrices, offs=ends)
        result.backward(torch.ones_like(result))
        return [result.detach(), x.grad, matrices.grad]

    assert_same(run(device), run("cpu"))


def test_is_one_program(device: torch.device) -> None:
    x, matrices, ends = tensors(device)
    others = ends - 1
    with torch.no_grad(), torch.tpu.set_eager_mode("strict"), torch.tpu.explain() as explanation:
        grouped_mm(x, matrices, offs=ends)
        grouped_mm(x, matrices, offs=others)
        torch.tpu.synchronize()
    assert len(explanation.runs) == 2


def test_a_width_that_is_not_aligned(device: torch.device) -> None:
    x, matrices, ends = (each.detach() for each in tensors(device))
    with pytest.raises(RuntimeError, match="multiple of 16 bytes"):
        grouped_mm(x[:, :3].contiguous(), matrices[:, :3].contiguous(), offs=ends)
