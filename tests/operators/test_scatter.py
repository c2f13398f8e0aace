"""Rows of crates/aten/src/ops/index/scatter.rs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import check_refused
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
