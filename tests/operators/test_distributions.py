"""Rows of crates/aten/src/ops/random/distributions.rs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "bernoulli",
    "cauchy",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "native_dropout_backward",
    "nn.functional.alpha_dropout",
    "nn.functional.dropout",
    "nn.functional.dropout2d",
    "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout.with_train",
    "nn.functional.feature_alpha_dropout.without_train",
    "normal",
    "normal.in_place",
    "normal.number_mean",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "uniform",
)


@pytest.mark.parametrize("bounds", [(-1, 2), (0, 300)])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool], ids=str)
def test_integers_that_a_dtype_does_not_hold(dtype: torch.dtype, bounds: tuple[int, int], device: torch.device) -> None:
    error = check_refused(lambda device: torch.empty(4, dtype=dtype, device=device).random_(*bounds), device)
    assert "is out of bounds for" in str(error)
    check_refused(lambda device: torch.randint(*bounds, (4,), dtype=dtype, device=device), device)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16], ids=str)
def test_bernoulli_into_another_dtype(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """PyTorch's kernels take out= arguments of dtypes that its Python reference refuses."""

    def drawn(on: torch.device) -> Tensor:
        out = torch.zeros(3, dtype=dtype, device=on)
        return torch.bernoulli(torch.tensor([0.0, 1.0, 1.0], device=on), out=out)

    check(drawn, device)


@pytest.mark.usefixtures("changing_sizes")
def test_more_samples_than_categories(device: torch.device, mode: str) -> None:
    """The capacity of the categories is larger than their number."""

    def run(on: torch.device, number: int) -> Tensor:
        return torch.multinomial(torch.ones(number, device=on) * 2, 5).sort().values

    for number in (9, 10, 11, 12, 9):
        assert len(set(run(device, number).tolist())) == 5
    for number in (4, 3):
        with pytest.raises(RuntimeError, match="cannot sample n_sample > prob_dist.size"):
            run(device, number).cpu()
    assert run(device, 5).tolist() == [0, 1, 2, 3, 4]
