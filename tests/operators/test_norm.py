"""Rows of crates/aten/src/ops/nn/norm.rs."""

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "native_group_norm",
    "native_layer_norm",
    "nn.functional.group_norm",
    "nn.functional.layer_norm",
    "nn.functional.local_response_norm",
    "nn.functional.normalize",
    "nn.functional.rms_norm",
)


@pytest.mark.parametrize("dim", [0, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_weight_norm(dtype: torch.dtype, dim: int, device: torch.device, mode: str) -> None:
    v, grad = torch.randn(2, 3, 4, 5, dtype=dtype)
    g = torch.rand([3, 1, 1] if dim == 0 else [1, 1, 5], dtype=dtype)

    def program(device: torch.device) -> object:
        on_device = [each.to(device) for each in (v, g)]
        weight, norms = torch._weight_norm_interface(*on_device, dim)
        backward = torch.ops.aten._weight_norm_interface_backward
        return weight, norms, backward(grad.to(device), *on_device, norms, dim)

    traced = torch.tpu.op_stats()["decomposed"]
    check(program, device)
    assert torch.tpu.op_stats()["decomposed"] == traced


@pytest.mark.parametrize("shape", [[5], [2, 0]])
def test_weight_norm_without_other_elements(shape: list[int], device: torch.device, mode: str) -> None:
    v, g = torch.randn(shape), torch.rand(shape[:1] + [1] * (len(shape) - 1))
    check(lambda d: torch._weight_norm_interface(v.to(d), g.to(d)), device)


def test_weight_norm_of_complex_numbers_is_refused(device: torch.device, mode: str) -> None:
    v, g = torch.ones(3, 4, dtype=torch.complex64), torch.ones(3, 1, dtype=torch.complex64)
    error = check_refused(lambda d: torch._weight_norm_interface(v.to(d), g.to(d)), device)
    assert "not implemented for 'ComplexFloat'" in str(error)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("other", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
def test_weight_norm_of_mixed_dtypes_is_refused(
    dtype: torch.dtype, other: torch.dtype, device: torch.device, mode: str
) -> None:
    v, g = torch.ones(3, 4, dtype=dtype), torch.ones(3, 1, dtype=other)
    if dtype != other:
        check_refused(lambda d: torch._weight_norm_interface(v.to(d), g.to(d)), device)
    wide = torch.promote_types(dtype, torch.float32)
    backward = torch.ops.aten._weight_norm_interface_backward
    for position, expected in enumerate((dtype, dtype, dtype, wide)):
        if position != 1 and other != expected:
            shapes, dtypes = ([3, 4], [3, 4], [3, 1], [3, 1]), [dtype, dtype, dtype, wide]
            dtypes[position] = other
            tensors = [torch.ones(shape, dtype=each) for shape, each in zip(shapes, dtypes, strict=True)]
            check_refused(lambda d, tensors=tensors: backward(*(each.to(d) for each in tensors), 0), device)


def test_weight_norm_of_negative_dimension_is_refused(device: torch.device, mode: str) -> None:
    v, g = torch.ones(3, 4), torch.ones(1, 4)
    error = check_refused(lambda d: torch._weight_norm_interface(v.to(d), g.to(d), -1), device)
    # The CPU's words name a file of PyTorch, whose path is no name of a device.
    assert "/native/cpu/WeightNormKernel.cpp" in str(error)
