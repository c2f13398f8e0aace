"""Rows of crates/aten/src/ops/elementwise/binary.rs."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, check, check_python, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "__radd__",
    "__rand__",
    "__rdiv__",
    "__rmod__",
    "__rmul__",
    "__ror__",
    "__rpow__",
    "__rsub__",
    "__rxor__",
    "add",
    "addcdiv",
    "addcmul",
    "allclose",
    "atan2",
    "clamp",
    "clamp_max",
    "clamp_min",
    "complex",
    "copysign",
    "div.floor_rounding",
    "div.no_rounding_mode",
    "div.trunc_rounding",
    "float_power",
    "floor_divide",
    "fmax",
    "fmin",
    "fmod",
    "gcd",
    "heaviside",
    "hypot",
    "isclose",
    "lcm",
    "ldexp",
    "lerp",
    "linalg.polar",
    "logaddexp",
    "logaddexp2",
    "masked.logaddexp",
    "max.binary",
    "max.reduction_no_dim",
    "max.reduction_with_dim",
    "maximum",
    "min.binary",
    "min.reduction_no_dim",
    "min.reduction_with_dim",
    "minimum",
    "mul",
    "nextafter",
    "nn.functional.silu.complex",
    "polar",
    "pow",
    "remainder",
    "rsub",
    "special.xlog1py",
    "sub",
    "true_divide",
    "where",
    "xlogy",
)


@pytest.mark.parametrize("bounds", [{"min": 0}, {"max": 1}], ids=["min", "max"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32], ids=str)
def test_clamp_takes_bools_with_one_tensor_as_a_bound(
    bounds: dict[str, int], dtype: torch.dtype, device: torch.device
) -> None:
    def program(device: torch.device) -> Tensor:
        x = torch.tensor([[True, False, True], [False, False, True]], device=device)
        tensors = torch.tensor([True, True, False], device=device)
        return torch.clamp(x, **{name: tensors[at:].to(dtype)[:1] for name, at in bounds.items()})

    check(program, device)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.clamp(x, x, x),
        lambda x, y: torch.clamp(x, min=True),
        lambda x, y: torch.sub(x, x),
        lambda x, y: torch.sub(y, x),
        lambda x, y: torch.rsub(x, 1),
        lambda x, y: torch.rsub(y, x),
        lambda x, y: torch.dist(x, y),
        lambda x, y: torch.dist(y, x),
        lambda x, y: torch.dist(x, x),
        lambda x, y: torch._foreach_sub([x], [x]),
        lambda x, y: torch._foreach_sub([y, y], [y, x]),
        lambda x, y: torch._foreach_sub([x], 1),
        lambda x, y: torch._foreach_sub([y], True),
        lambda x, y: torch._foreach_sub_([y], [x]),
    ],
)
def test_calls_that_refuse_bools(call: Callable[[Tensor, Tensor], object], device: torch.device) -> None:
    def program(device: torch.device) -> object:
        return call(torch.tensor([True, False], device=device), torch.ones(2, device=device))

    check_refused(program, device)


def test_lerp_of_reals_refuses_a_complex_weight(device: torch.device) -> None:
    error = check_refused(
        lambda device: torch.lerp(torch.ones(3, device=device), torch.zeros(3, device=device), 1j), device
    )
    assert "value cannot be converted to type float without overflow" in str(error)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("base", [torch.int32, torch.float64, None], ids=str)
def test_powers_of_zero(base: torch.dtype | None, dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """A power of zero is zero if the real part of the exponent is positive, as in C."""
    zeros = torch.tensor([0, 0, 0, 2], dtype=base or dtype)
    exponents = torch.tensor([2 + 1j, 0.5 - 3j, 1, 2 - 1j], dtype=dtype)

    def program(device: torch.device) -> object:
        x, y = zeros.to(device), exponents.to(device)
        return [x**y, x ** (2 + 1j), torch.float_power(x, y), 0**y, torch._foreach_pow([x], 1 - 1j)[0]]

    check(program, device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16], ids=str)
def test_lcm_at_the_ends_of_the_type(dtype: torch.dtype, device: torch.device) -> None:
    """Also where the greatest common divisor is the lowest number, and where the multiple has no place in the type.

    PyTorch's CPU ends the process for the lowest number of a larger type."""
    ends = torch.iinfo(dtype)
    numbers = torch.tensor([0, 1, 3, 55, 96, 127, ends.max, ends.min, ends.max // 2 + 1, ends.min // 2], dtype=dtype)
    check(lambda device: torch.lcm(numbers.to(device)[:, None], numbers.to(device)), device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32, torch.int64], ids=str)
def test_integers_without_elements_are_divided(dtype: torch.dtype) -> None:
    """A division by zero in the code of the CPU plugin would end the process."""
    check_python(
        f"""
import torch

for shape in ((0,), (1, 0, 3)):
    x = torch.zeros(shape, dtype={dtype}, device="tpu")
    for divided in (torch.floor_divide, torch.remainder, torch.fmod):
        assert divided(x, x.clone()).cpu().shape == shape
    assert torch.div(x, x.clone(), rounding_mode="trunc").cpu().shape == shape
    x.fmod_(x.clone())
    assert x.cpu().shape == shape
"""
    )


def test_strides_of_where_are_those_of_the_kernels(device: torch.device) -> None:
    """Dimensions of one element leave a choice, which PyTorch's reference makes otherwise."""
    column = torch.arange(5).reshape(5, 1)
    row = column.unsqueeze(-1).transpose(0, -1)
    expected = torch.where(column > 2, row, column)
    result = torch.where(column.to(device) > 2, row.to(device), column.to(device))
    assert result.stride() == expected.stride()
    assert_same(result, expected)


def test_bytes_as_a_condition(device: torch.device) -> None:
    """PyTorch takes them, with a warning."""
    condition = torch.tensor([[1, 0, 255]], dtype=torch.uint8)

    def program(d: torch.device) -> list[Tensor]:
        x, chosen = torch.arange(6.0, device=d).reshape(2, 3), condition.to(d)
        out = torch.zeros(2, 3, device=d)
        torch.where(chosen, x, -x, out=out)
        return [out, torch.where(chosen, x, 0), x.where(chosen.t()[:2] > 0, -1), torch.where(chosen.t(), 1, x[0])]

    check(program, device)
    for other in (torch.int32, torch.float32):
        wrong = condition.to(other)
        error = check_refused(lambda d, wrong=wrong: torch.where(wrong.to(d), 1.0, torch.zeros(3, device=d)), device)
        assert "boolean tensor" in str(error)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
def test_infinite_exponents_of_ldexp(device: torch.device, dtype: torch.dtype) -> None:
    infinity = math.inf
    exponents = torch.tensor([infinity, -infinity, math.nan, 3, -2, 0], dtype=dtype)
    x = torch.tensor([1, -2, 0, infinity, math.nan], dtype=dtype)[:, None]
    check(lambda d: torch.ldexp(x.to(d), exponents.to(d)), device)


@pytest.mark.parametrize(
    "part",
    [lambda x: x[:, 1:3], lambda x: x[:, ::2], lambda x: x.t()[1:], lambda x: x],
    ids=["columns", "steps", "t", "x"],
)
@pytest.mark.parametrize(
    "divide",
    [
        lambda x, y: x.div_(y, rounding_mode="floor"),
        lambda x, y: x.div_(y, rounding_mode="trunc"),
        lambda x, y: x.floor_divide_(y),
        lambda x, y: x.remainder_(y),
        lambda x, y: x.fmod_(y),
        lambda x, y: torch.remainder(x * 5, y, out=x),
    ],
    ids=["floor", "trunc", "floor_divide", "remainder", "fmod", "out"],
)
def test_integers_are_divided_in_parts_of_a_tensor(
    divide: Callable[[Tensor, Tensor], Tensor], part: Callable[[Tensor], Tensor], device: torch.device, mode: str
) -> None:
    """Also by themselves. A divisor of 0 is refused."""

    def program(device: torch.device, divisors: list[int] | None) -> object:
        whole = torch.arange(-8, 8, device=device).reshape(4, 4) * 2 + 1
        x = part(whole)
        divisor = x if divisors is None else torch.tensor(divisors, device=device)[: len(x), None]
        return divide(x, divisor).tolist(), whole.tolist()

    check(lambda device: program(device, [3, -2, 1, 5]), device)
    check(lambda device: program(device, None), device)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        program(device, [3, 0, 1, 5])


@pytest.mark.parametrize("part", [slice(None), slice(None, None, 2), slice(0)], ids=["all", "steps", "empty"])
def test_integers_cannot_hold_the_results_of_floats(part: slice, device: torch.device) -> None:
    for call in (torch.Tensor.logit_, torch.Tensor.sqrt_, lambda x: x.ldexp_(torch.ones_like(x))):
        error = check_refused(lambda device: call(torch.ones(4, dtype=torch.int32, device=device)[part]), device)  # noqa: B023
        assert "can't be cast to the desired output type Int" in str(error)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["fmod", "remainder", "trunc"])
def test_quotients_of_16_bits_are_rounded_as_on_the_cpu(name: str, dtype: torch.dtype, device: torch.device) -> None:
    """A remainder by a number rounds the number first. A quotient of two elements is rounded before it is truncated."""
    functions = {"fmod": torch.fmod, "remainder": torch.remainder}
    function = functions.get(name, functools.partial(torch.div, rounding_mode=name))
    x, y = (torch.rand(4000) * 20 - 10).to(dtype), (torch.rand(4000) * 4 + 0.1).to(dtype)
    for other in (2.3, torch.tensor(2.3), torch.tensor(2.3, dtype=dtype), y):
        on_device = other.to(device) if isinstance(other, torch.Tensor) else other
        assert torch.equal(function(x.to(device), on_device).cpu(), function(x, other))
    if name == "remainder":
        assert torch.equal(torch.remainder(2.3, y.to(device)).cpu(), torch.remainder(2.3, y))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("scale", [3.0, 100.0, 10000.0])
def test_large_complex_powers(scale: float, dtype: torch.dtype, device: torch.device) -> None:
    """A finite power is finite, also where a factor of it has no place in the type; and no power of these is NaN."""
    x, y = torch.randn(2000, dtype=dtype) * scale, torch.randn(2000, dtype=dtype) * min(scale, 1000.0)
    actual, expected = (x.to(device) ** y.to(device)).cpu(), x**y
    assert not torch.view_as_real(actual).isnan().any()
    # The last bits of the logarithm decide at the border of the range.
    assert (actual.isfinite() != expected.isfinite()).sum() <= 2
    both = actual.isfinite() & expected.isfinite() & (expected.abs() > 1e-30)
    torch.testing.assert_close(actual[both].abs(), expected[both].abs(), rtol=1e-2 if scale > 3 else 1e-5, atol=0)
