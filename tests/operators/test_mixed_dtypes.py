"""One argument of another dtype than the rest: what the CPU's kernels refuse is refused, with the same words.

`python -m tests.conformance --directions mixed` asks the same of every operator in PyTorch's database.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.helpers import check, check_refused

f32, f64, f16, bf16, i64, i32 = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
)
F = nn.functional


class Makes:
    """Tensors of ones, and of other numbers, on a device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self, *sizes: int, dtype: torch.dtype = f32) -> Tensor:
        return torch.ones(sizes, dtype=dtype, device=self.device)

    def of(self, numbers: list, dtype: torch.dtype = f32) -> Tensor:
        return torch.tensor(numbers, dtype=dtype, device=self.device)


Call = Callable[[Makes], object]
REFUSED: dict[str, Call] = {
    "conv1d": lambda m: F.conv1d(m(1, 1, 5), m(1, 1, 3, dtype=f16)),
    "conv2d": lambda m: F.conv2d(m(1, 1, 3, 3), m(1, 1, 3, 3, dtype=bf16)),
    "conv2d of half": lambda m: F.conv2d(m(1, 1, 3, 3, dtype=f16), m(1, 1, 3, 3)),
    "conv_transpose2d": lambda m: F.conv_transpose2d(m(1, 1, 3, 3), m(1, 1, 3, 3, dtype=f64)),
    "addbmm": lambda m: torch.addbmm(m(1, 3, dtype=f64), m(1, 1, 3), m(1, 3, 3)),
    "cross": lambda m: torch.linalg.cross(m(3), m(3, dtype=f64)),
    "cdist": lambda m: torch.cdist(m(3, 2), m(3, 2, dtype=f64)),
    "grid_sample": lambda m: F.grid_sample(m(1, 1, 3, 3, dtype=f64), m(1, 2, 2, 2), align_corners=True),
    "softmax backward": lambda m: torch.ops.aten._softmax_backward_data(m(2, 3, dtype=f64), m(2, 3), 1, f32),
    "log_softmax backward": lambda m: torch.ops.aten._log_softmax_backward_data(m(2, 3), m(2, 3, dtype=f64), 1, f32),
    "layer_norm": lambda m: F.layer_norm(m(2, 3), (3,), m(3, dtype=f64)),
    "layer_norm, bias": lambda m: F.layer_norm(m(2, 3), (3,), m(3), m(3, dtype=f16)),
    "layer_norm of double": lambda m: F.layer_norm(m(2, 3, dtype=f64), (3,), m(3)),
    "group_norm": lambda m: F.group_norm(m(2, 4, 3), 2, m(4, dtype=f64)),
    "batch_norm": lambda m: F.batch_norm(m(2, 3), m(3), m(3), m(3, dtype=f64), training=True),
    "batch_norm, statistics": lambda m: F.batch_norm(m(2, 3), m(3, dtype=f64), m(3, dtype=f64)),
    "instance_norm": lambda m: F.instance_norm(m(2, 3, 4), weight=m(3, dtype=f16), bias=m(3, dtype=f16)),
    "binary_cross_entropy": lambda m: F.binary_cross_entropy(m(3, dtype=f64), m(3)),
    "binary_cross_entropy_with_logits": lambda m: F.binary_cross_entropy_with_logits(m(3, dtype=i64), m(3)),
    "soft_margin_loss": lambda m: F.soft_margin_loss(m(3, dtype=i64), m(3)),
    "huber_loss": lambda m: F.huber_loss(m(3, dtype=i64), m(3)),
    "multilabel_margin_loss": lambda m: F.multilabel_margin_loss(m(2, 3), m(2, 3, dtype=i32)),
    "ctc_loss": lambda m: F.ctc_loss(m(5, 1, 4, dtype=f16), m.of([[1, 2]], i64), torch.tensor([5]), torch.tensor([2])),
    "embedding_bag": lambda m: F.embedding_bag(
        m.of([[0, 1]], i64), m(4, 3), per_sample_weights=m(1, 2, dtype=f64), mode="sum"
    ),
    "histogram": lambda m: torch.histogram(m(3), m.of([0, 1, 2], f64)),
    "histogram, weight": lambda m: torch.histogram(m(3), m.of([0, 1, 2]), weight=m(3, dtype=f64)),
    "searchsorted": lambda m: torch.searchsorted(m(3), m(3), sorter=m.of([0, 1, 2], i32)),
    "put, index": lambda m: m(4).put_(m.of([1], i32), m(1)),
    "put, source": lambda m: m(4).put_(m.of([1], i64), m(1, dtype=f64)),
    "index_put": lambda m: m(4).index_put((m.of([0, 1]),), m(2)),
    "setitem": lambda m: m(4).__setitem__(m.of([0, 1]), 2.0),
    "index_put_ that adds": lambda m: m(4).index_put_((m.of([0, 1], f16),), m(2), accumulate=True),
    "sampled_addmm": lambda m: torch.sparse.sampled_addmm(m(3, 3).to_sparse_csr(), m(3, 3, dtype=f64), m(3, 3)),
    "sampled_addmm, self": lambda m: torch.sparse.sampled_addmm(
        m(3, 3).to_sparse_csr(), m(3, 3, dtype=f64), m(3, 3, dtype=f64)
    ),
    "sparse.mm": lambda m: torch.sparse.mm(m(3, 3).to_sparse_csr(), m(3, 2, dtype=f64), "sum"),
    "solve_triangular": lambda m: torch.linalg.solve_triangular(m(2, 2, dtype=i64), m(2, 2), upper=True),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_on_the_cpu(device: torch.device, name: str) -> None:
    error = check_refused(lambda d: REFUSED[name](Makes(d)), device)
    assert "internal" not in str(error)
    assert "stablehlo" not in str(error)


@pytest.mark.parametrize("dtype", [bf16, f16])
def test_normalizations_take_parameters_of_float32(device: torch.device, dtype: torch.dtype) -> None:
    def run(d: torch.device) -> list[Tensor]:
        x, weight, bias = (torch.linspace(-1, 2, 24, device=d), *torch.linspace(0, 1, 8, device=d).chunk(2))
        x = x.to(dtype).reshape(2, 4, 3)
        mean, variance = torch.zeros(4, device=d), torch.ones(4, device=d)
        return [
            F.layer_norm(x.mT, (4,), weight, bias),
            F.group_norm(x, 2, weight, bias),
            F.batch_norm(x, mean, variance, weight, bias),
            F.batch_norm(x, mean, variance, weight, bias, training=True),
            mean,
        ]

    check(run, device)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.bool])
@pytest.mark.parametrize("value", [1, 2, 3.14, 0.5, -2.5])
@pytest.mark.parametrize("name", ["addcmul", "addcdiv"])
def test_the_factor_of_floats_that_are_added_to_integers(
    device: torch.device, name: str, value: float, dtype: torch.dtype
) -> None:
    def run(d: torch.device) -> Tensor:
        one, other = torch.tensor([1.5, 2.5, -3.0], device=d), torch.tensor([2.0, 3.0, 0.5], device=d)
        return getattr(torch, name)(torch.tensor([1, 0, 1], dtype=dtype, device=d), one, other, value=value)

    check(run, device)


def test_a_right_side_of_another_dtype(device: torch.device) -> None:
    def run(d: torch.device) -> list[Tensor]:
        matrix = torch.tensor([[2.0, 1.0], [0.0, 4.0]], device=d)
        sides = [torch.tensor([[1, 2], [3, 4]], dtype=dtype, device=d) for dtype in (f64, f32, i64)]
        return [torch.linalg.solve_triangular(matrix, side, upper=True) for side in sides]

    check(run, device)
