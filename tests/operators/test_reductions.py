"""Rows of crates/aten/src/ops/reduce/reductions.rs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "all",
    "amax",
    "amin",
    "aminmax",
    "any",
    "argmax",
    "argmin",
    "count_nonzero",
    "hash_tensor",
    "logsumexp",
    "masked.amax",
    "masked.amin",
    "masked.argmax",
    "masked.argmin",
    "masked.logsumexp",
    "masked.mean",
    "masked.prod",
    "masked.std",
    "masked.sum",
    "masked.var",
    "mean",
    "nanmean",
    "nansum",
    "prod",
    "std",
    "std.unbiased",
    "std_mean",
    "std_mean.unbiased",
    "sum",
    "trapezoid",
    "trapz",
    "var",
    "var.unbiased",
    "var_mean",
    "var_mean.unbiased",
)


FLOATS = (torch.float16, torch.float64)
NUMBERS = (torch.int64, torch.int8, torch.complex64, *FLOATS)
TYPES_OF_OUT = {
    "sum": (torch.bool, *NUMBERS),
    "prod": (torch.bool, *NUMBERS),
    "nansum": FLOATS,
    "cumsum": NUMBERS,
    "cumprod": NUMBERS,
}


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, dtypes in TYPES_OF_OUT.items() for dtype in dtypes]
)
def test_the_type_of_out_is_that_of_the_computation(name: str, dtype: torch.dtype, device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        outs = [torch.empty(0, dtype=dtype, device=d) for _ in range(2)]
        x = torch.tensor([[1.6, 1.6, -0.7, 2.5], [0.5, -0.5, 1e-9, 0.25]], device=d)
        getattr(torch, name)(x, 1, out=outs[0])
        getattr(torch, name)(x[0] > 1, 0, out=outs[1])
        return outs

    check(run, device)


@pytest.mark.parametrize("sizes", [(5, 4096), (3, 1100), (2, 1089), (7, 1031), (40, 24), (2, 3, 1120)], ids=str)
def test_sums_of_many_elements(sizes: tuple[int, ...], device: torch.device) -> None:
    """On a CPU, sums along the last dimension are sums of blocks where a block divides it."""

    def run(d: torch.device) -> list[Tensor]:
        numbers = torch.arange(2 * sizes[-1] * sizes[0] * len(sizes))[: torch.Size(sizes).numel()].view(sizes).to(d)
        signs = numbers % 3 - 1
        odd, last = numbers % 2 == 1, len(sizes) - 1
        exact = [
            each
            for x in (odd, signs, signs.to(torch.int8), signs.to(torch.bfloat16))
            for each in (x.sum(), x.sum(last))
        ]
        exact += [signs.sum(0), odd.sum((0, last)), odd.count_nonzero(), signs.transpose(0, last).sum(last)]
        extremes = [each for x in (numbers.bfloat16(), numbers.half()) for each in (x.amax(last), x.amin(0), x.amax())]
        halves = numbers.float() / 2
        return [*exact, *extremes, halves.mean(last), halves.double().var(last), (odd & (numbers > 7)).any(last)]

    check(run, device)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32])
def test_long_sums_of_sizes_that_change(dtype: torch.dtype, device: torch.device) -> None:
    """The padding is not summed: `y` is 0.5 or 1 there."""

    def run(d: torch.device, rows: int, columns: int) -> list[Tensor]:
        x = (torch.arange(rows * columns).reshape(rows, columns) % 3 - 1).to(dtype).to(d)
        y = (1 / (x * x)).where(x != 0, 0.5) if dtype.is_floating_point else x * x + 1
        sums = [y.sum(), y.sum(-1), y.sum(0), y.sum((0, 1), keepdim=True), (y > 0.5).sum(-1), y[:, 1:].sum(-1)]
        return [*sums, y.double().norm(), y.double().var(-1), y.float().mean(-1)]

    for sizes in ((40, 3000), (50, 3000), (45, 3100), (41, 2900), (1, 3001), (3, 2500)):
        check(lambda d, sizes=sizes: run(d, *sizes), device)
