"""Rows of crates/aten/src/ops/index/scatter.rs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "_segment_reduce.lengths",
    "_segment_reduce.offsets",
    "_unsafe_masked_index",
    "_unsafe_masked_index_put_accumulate",
    "bincount",
    "histc",
    "histogram",
    "histogramdd",
    "index_add",
    "index_copy",
    "index_fill",
    "index_reduce.amax",
    "index_reduce.amin",
    "index_reduce.mean",
    "index_reduce.prod",
    "masked_fill",
    "masked_scatter",
    "scatter",
    "scatter_add",
    "scatter_reduce.amax",
    "scatter_reduce.amin",
    "scatter_reduce.mean",
    "scatter_reduce.prod",
    "scatter_reduce.sum",
)


@pytest.mark.parametrize(
    ("dtype", "value"), [(torch.int64, 1j), (torch.int64, torch.tensor(1j)), (torch.int32, 1.0)], ids=str
)
def test_index_fill_refuses(dtype: torch.dtype, value: object, device: torch.device) -> None:
    def program(device: torch.device) -> None:
        index = torch.zeros(1, dtype=dtype, device=device)
        torch.ones(2, 2, device=device).index_fill_(1, index, value)

    assert "index_fill_(): " in str(check_refused(program, device))


FILLED_BY_A_TENSOR: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "index_fill": lambda x, value: x.index_fill(0, torch.zeros(1, dtype=torch.int64, device=x.device), value),
    "masked_fill": lambda x, value: x.masked_fill(x == 1, value),
}


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", FILLED_BY_A_TENSOR)
def test_integers_filled_by_a_tensor(device: torch.device, mode: str, name: str, dtype: torch.dtype) -> None:
    """Its number fits, or the next read raises PyTorch's error."""
    fill, x = FILLED_BY_A_TENSOR[name], torch.tensor([1, 2], dtype=dtype)
    limits = torch.iinfo(dtype)
    values = [
        float(limits.min),
        -1.5,
        -1,
        0.5,
        100,
        limits.max / 2,
        limits.max,
        limits.max + 1.0,
        limits.min - 1.0,
        math.nan,
    ]
    for value in [torch.tensor(value) for value in values if dtype != torch.int64 or abs(value) < 2**53]:
        try:
            expected = fill(x, value)
        except RuntimeError as error:
            with pytest.raises(RuntimeError, match=re.escape(str(error))):
                fill(x.to(device), value.to(device)).cpu()
        else:
            torch.testing.assert_close(fill(x.to(device), value.to(device)).cpu(), expected)
        torch.tpu.synchronize()
