"""Rows of crates/aten/src/ops/elementwise/unary.rs."""

import math
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from tests.helpers import check
from tests.operators.samples import samples

test_samples = samples(
    "abs",
    "acos",
    "acosh",
    "angle",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "bitwise_not",
    "ceil",
    "conj_physical",
    "cos",
    "cosh",
    "deg2rad",
    "exp",
    "exp2",
    "expm1",
    "floor",
    "frac",
    "frexp",
    "isfinite",
    "isinf",
    "isnan",
    "isneginf",
    "isposinf",
    "isreal",
    "jiterator_2inputs_2outputs",
    "jiterator_4inputs_with_extra_args",
    "jiterator_binary",
    "jiterator_binary_return_by_ref",
    "jiterator_unary",
    "log",
    "log10",
    "log1p",
    "log2",
    "logical_not",
    "logit",
    "nan_to_num",
    "neg",
    "positive",
    "rad2deg",
    "reciprocal",
    "round",
    "round.decimals_0",
    "round.decimals_3",
    "round.decimals_neg_3",
    "rsqrt",
    "sgn",
    "sigmoid",
    "sign",
    "signbit",
    "sin",
    "sinc",
    "sinh",
    "sqrt",
    "square",
    "tan",
    "tanh",
    "trunc",
)


def test_conj_physical_in_place(device: torch.device) -> None:
    def program(device: torch.device) -> torch.Tensor:
        x = torch.complex(torch.arange(6.0), torch.arange(6.0) - 2).reshape(2, 3).to(device)
        x.t()[1:].conj_physical_()
        return x

    check(program, device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_exponential_of_minus_infinity_is_zero(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    parts = [0.0, -2.5, math.inf, -math.inf, math.nan]
    numbers = torch.tensor([complex(-math.inf, part) for part in parts] + [complex(0.5, 2)], dtype=dtype)
    check(lambda device: numbers.to(device).exp(), device)


@pytest.mark.parametrize(
    "name", ["cos", "cosh", "exp2", "expm1", "log10", "log2", "rsqrt", "sin", "sinh", "tan", "tanh"]
)
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_small_parts_of_complex_results(name: str, dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """Each part is as near to the CPU's as its own size asks: a step along the imaginary axis gives a derivative."""
    sizes = [0.0, 1e-10, -1e-6, 1e-3, 0.75, -2.0]
    numbers = torch.tensor([complex(real, imaginary) for real in sizes for imaginary in sizes], dtype=dtype)
    function = getattr(torch, name)
    result = torch.view_as_real(function(numbers.to(device)).cpu())
    expected = torch.view_as_real(function(numbers.to(torch.complex128)))
    # Parts that double precision rounds to nothing, next to the other part, are left out.
    expected = torch.where(expected.abs() < 1e-9 * expected.abs().amax(-1, keepdim=True), result.double(), expected)
    tolerance = 1e-5 if dtype == torch.complex64 else 1e-6
    torch.testing.assert_close(result.double(), expected, rtol=tolerance, atol=0, equal_nan=True)


CUT = ("acos", "acosh", "asin", "asinh", "atan", "atanh", "log", "log10", "log1p", "rsqrt", "sqrt")


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_zeros_have_signs_at_branch_cuts(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    parts = [0.0, -0.0, 0.5, -0.5, 2.0, -2.0, 1e10, -1e10]
    numbers = torch.tensor([complex(real, imaginary) for real in parts for imaginary in parts[:2]], dtype=dtype)
    # Some functions have their cut on the other axis, and some have a pole at zero.
    numbers = torch.cat([numbers, torch.complex(numbers.imag, numbers.real)])
    numbers = numbers[numbers != 0]
    for name in CUT:
        check(lambda device, name=name: getattr(torch, name)(numbers.to(device)), device)
    check(lambda device: [numbers.to(device).pow(0.5), numbers.to(device).pow(-0.5)], device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_exponentials_of_large_complex_numbers(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    numbers = torch.tensor([1e20, 1e20 + 1j, -1e20, -1e20 + 1j, complex(math.inf, 0), -math.inf], dtype=dtype)
    check(lambda device: [numbers.to(device).exp2(), numbers.to(device).expm1(), numbers.to(device).exp()], device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_sigmoid_of_large_complex_numbers(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    parts = [0.0, 1.0, -60.0, 60.0, 1e3, math.inf]
    numbers = torch.tensor([-1e3, *(complex(real, imaginary) for real in parts for imaginary in (0, 1))], dtype=dtype)
    check(lambda device: [numbers.to(device).sigmoid(), functional.silu(numbers.to(device)[:-2])], device)
    # PyTorch's CPU divides by infinity, which is NaN where both parts are infinite.
    numbers = torch.tensor([-1e3 + 1j, -1e3 - 3j, complex(-math.inf, 0), complex(-math.inf, 1)], dtype=dtype)
    assert torch.equal(numbers.to(device).sigmoid().abs().cpu(), torch.zeros(4, dtype=dtype.to_real()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_one_part_of_a_complex_number_is_infinite(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    real = torch.tensor([complex(math.inf, 0), complex(-math.inf, -0.0)], dtype=dtype)
    imaginary = torch.complex(real.imag, real.real)
    check(lambda device: [real.to(device).sin(), real.to(device).cos(), real.to(device).sgn()], device)
    check(lambda device: [imaginary.to(device).sinh(), imaginary.to(device).cosh(), imaginary.to(device).sgn()], device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_reciprocals_of_infinite_complex_numbers(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """NaN where no part is finite: both parts of the root of a number with an infinite imaginary part are infinite."""
    parts = [math.inf, -math.inf, math.nan, 1.0, -2.5]
    numbers = torch.tensor([complex(real, imaginary) for real in parts for imaginary in parts], dtype=dtype)
    check(lambda device: [numbers.to(device).reciprocal(), numbers.to(device).rsqrt()], device)


@pytest.mark.parametrize(
    "name",
    [
        *("abs", "sgn", "sqrt", "exp", "log", "log2", "log10", "sin", "cos", "tan", "sinh", "cosh", "tanh"),
        *("asin", "acos", "atan", "asinh", "acosh", "atanh"),
    ],
)
def test_parts_that_are_not_finite(name: str, device: torch.device, mode: str) -> None:
    """As in C, a part that is NaN does not hide the other's infinity, and gives no number."""
    parts = [math.inf, -math.inf, math.nan, 1.0, 0.0, -0.0, 1e30]
    numbers = torch.tensor([complex(real, imaginary) for real in parts for imaginary in parts], dtype=torch.complex128)
    expected = torch.stack([getattr(torch, name)(number) for number in numbers])
    result = getattr(torch, name)(numbers.to(device)).cpu()
    if result.is_complex():
        # The sign of an infinity beside NaN is not specified.
        result, expected = torch.view_as_real(result), torch.view_as_real(expected)
        beside_nan = expected.isnan().any(-1, keepdim=True)
        result, expected = (torch.where(beside_nan & x.isinf(), math.inf, x) for x in (result, expected))
    torch.testing.assert_close(result, expected, equal_nan=True)


def test_functions_of_large_imaginary_parts_are_infinite(device: torch.device, mode: str) -> None:
    numbers = torch.tensor([1e20j, -1e20j, 1e20, -1e20, 0j])
    check(lambda d: [numbers.to(d).sin().imag, numbers.to(d).cos()[:2], numbers.to(d).log2()], device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_sinc_of_small_complex_numbers(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    numbers = torch.tensor([1e-10 + 1e-10j, -1e-5 + 1e-5j, 1e-15 - 2e-15j, 1e-3 + 1j], dtype=dtype)
    check(lambda device: numbers.to(device).sinc(), device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_hyperbolic_functions_of_large_numbers(name: str, dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """Their exponents are not rounded: the error stays a few units in the last place."""
    function, largest = getattr(torch, name), math.log(torch.finfo(dtype).max)
    x = torch.linspace(-largest, largest, 2001, dtype=dtype)
    result = function(x.to(device)).cpu()
    epsilon = torch.finfo(dtype).eps
    torch.testing.assert_close(result.double(), function(x.double()), rtol=5 * epsilon, atol=0)
    assert function(torch.tensor(largest + 0.69, dtype=dtype, device=device)).isfinite()
    assert function(torch.tensor(largest + 0.7, dtype=dtype, device=device)).isinf()


@pytest.mark.parametrize("function", [torch.tan, torch.tanh])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_complex_tangents(
    function: Callable[[torch.Tensor], torch.Tensor], dtype: torch.dtype, device: torch.device
) -> None:
    """Near the poles, on the axes, and far from them."""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(4000, 2, generator=generator, dtype=torch.float64)
    pole = torch.tensor([math.pi / 2, 0.0])
    for near in (numbers * 0.1 + pole, numbers * 1e-3 - pole, numbers * 1e-6 + pole, numbers * 3, numbers * 20):
        parts = near if function is torch.tan else near.flip(1)
        z = torch.view_as_complex(parts.contiguous()).to(dtype)
        found, exact = function(z.to(device)).cpu(), function(z.to(torch.complex128))
        error = (found - exact).abs() / exact.abs()
        assert error.max() < (1e-6 if dtype == torch.complex64 else 1e-14)
    on_axis = torch.tensor(
        [0j, -0.0 + 1j, complex(-0.0, -0.0), 1 + 0j, complex(1, -0.0), complex(300, -1)], dtype=dtype
    )
    found, expected = function(on_axis.to(device)).cpu(), function(on_axis)
    torch.testing.assert_close(found, expected)
    assert torch.equal(torch.view_as_real(found).signbit(), torch.view_as_real(expected).signbit())
