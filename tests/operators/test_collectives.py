"""Collectives inside a program of all ranks are operations of StableHLO. tests/distributed compares their numbers with
those of several processes."""

from __future__ import annotations

import pytest

from tests.helpers import check_python

SCRIPT = """
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as funcol
import torch.testing._internal.distributed.fake_pg

dist.init_process_group("cpu:fake,tpu:fake", store=dist.HashStore(), rank=0, world_size=4)
x = torch.ones(8, 3, device="tpu")
print(torch.tpu.stablehlo(lambda x: {call}, x))
"""


@pytest.mark.parametrize(
    ("call", "operation"),
    [
        ("funcol.all_reduce(x, 'sum', dist.group.WORLD)", "stablehlo.all_reduce"),
        ("funcol.reduce_scatter_tensor(x, 'sum', 0, dist.group.WORLD)", "stablehlo.reduce_scatter"),
    ],
)
def test_a_collective_is_an_operation(call: str, operation: str) -> None:
    assert operation in check_python(SCRIPT.replace("{call}", call))
