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


def test_weights_of_histograms(device: torch.device) -> None:
    points = torch.arange(6.0).reshape(2, 3)

    def of_one(weight: Tensor) -> Callable[[torch.device], object]:
        return lambda d: torch.histogram(points.to(d), torch.tensor([0.0, 3.0, 6.0], device=d), weight=weight.to(d))

    def of_all(weight: Tensor) -> Callable[[torch.device], object]:
        return lambda d: torch.histogramdd(points.to(d), (1, 2, 1), weight=weight.to(d))

    check(of_one(torch.arange(6.0).reshape(2, 3)), device)
    check(of_one(torch.arange(6.0).reshape(3, 2)), device)
    check(of_all(torch.ones(2)), device)
    for program in (of_one(torch.ones(5)), of_all(torch.ones(1, 2)), of_all(torch.ones(3))):
        assert "should have the same shape as the input tensor" in str(check_refused(program, device))


def test_bins_of_nothing_do_not_look_at_weights(device: torch.device) -> None:
    check(lambda d: torch.bincount(torch.zeros(0, dtype=torch.int64, device=d), torch.ones(3, device=d), 2), device)
