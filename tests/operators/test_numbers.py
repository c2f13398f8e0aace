"""Number arguments: valid numbers give the CPU's results, invalid ones are refused at the line."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.helpers import DTYPES, check, check_refused

REAL_DTYPES = [dtype for dtype in DTYPES if not dtype.is_complex]
NUMBERS = (0, 1, -1, True, 100, 255, -200, 300, 70000, 2**33, -(2**40), 1.5, -0.5, 1e39, math.inf, -math.inf, math.nan)
# Functions of a tensor and a number.
OPERATORS: dict[str, Callable[[Tensor, Any], Any]] = {
    "add": lambda x, number: x + number,
    "sub": lambda x, number: x - number,
    "rsub": lambda x, number: number - x,
    "mul": lambda x, number: x * number,
    "div": lambda x, number: x / number,
    "floor_divide": lambda x, number: x // number,
    "remainder": lambda x, number: x % number,
    "fmod": torch.fmod,
    "div trunc": lambda x, number: torch.div(x, number, rounding_mode="trunc"),
    "pow": lambda x, number: x**number,
    "rpow": lambda x, number: number**x,
    "shift left": lambda x, number: x << number,
    "shift right": lambda x, number: x >> number,
    "eq": lambda x, number: x == number,
    "lt": lambda x, number: x < number,
    "where": lambda x, number: torch.where(x > 1, x, number),
    "masked_fill": lambda x, number: x.masked_fill(x > 1, number),
    "fill_": lambda x, number: x.clone().fill_(number),
    "full_like": torch.full_like,
    "setitem": lambda x, number: x.clone().__setitem__(0, number),
    "fill_diagonal_": lambda x, number: x.clone().fill_diagonal_(number),
    "index_fill": lambda x, number: x.index_fill(0, torch.tensor([0], device=x.device), number),
    "scatter": lambda x, number: x.scatter(0, torch.zeros(1, 2, dtype=torch.int64, device=x.device), number),
    "clamp": lambda x, number: torch.clamp(x, min=number, max=number),
    "clamp_min": torch.clamp_min,
    "clamp_max": torch.clamp_max,
    "hardtanh": lambda x, number: F.hardtanh(x, number, number),
    "relu6": lambda x, number: F.relu6(x),
    "threshold": lambda x, number: F.threshold(x, number, number),
    "pad": lambda x, number: F.pad(x, (1, 1), value=number),
    "addcmul": lambda x, number: torch.addcmul(x, x, x, value=number),
    "add of so many": lambda x, number: torch.add(x, x, alpha=number),
    "nan_to_num": lambda x, number: torch.nan_to_num(x, nan=number),
    "foreach": lambda x, number: torch._foreach_add([x], number),
}


def outcome(operator: Callable[[], Any]) -> Any:
    """The results, or the class of the exception."""
    try:
        results = operator()
    except Exception as error:
        return type(error)
    results = results if isinstance(results, list | tuple) else [results]
    return [each.cpu() if isinstance(each, Tensor) else each for each in results]


@pytest.mark.parametrize("dtype", REAL_DTYPES, ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_numbers_that_fit_and_that_do_not(name: str, dtype: torch.dtype, device: torch.device, mode: str) -> None:
    operator = OPERATORS[name]
    x = torch.tensor([[1, 2], [0, 3]]).to(dtype)
    mine = x.to(device)
    for number in NUMBERS:
        expected = outcome(lambda number=number: operator(x, number))
        actual = outcome(lambda number=number: operator(mine, number))
        assert isinstance(actual, type) == isinstance(expected, type), f"{number}: {actual}, not {expected}"
        if isinstance(expected, type):
            assert actual is expected, number
        else:
            torch.testing.assert_close(actual, expected, equal_nan=True, msg=lambda told, n=number: f"{n}: {told}")
    assert torch.equal(mine.cpu(), x)


def test_a_known_program_refuses_a_number_that_does_not_fit(device: torch.device, mode: str) -> None:
    x = torch.zeros(3, dtype=torch.uint8, device=device)
    assert x.fill_(200).tolist() == [200] * 3
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint8_t without overflow"):
        x.fill_(300)
    with pytest.raises(RuntimeError, match="Clamp max value -1 is outside the representable range of Byte"):
        x.clamp_(max=-1)
    assert x.tolist() == [200] * 3


def set_one(x: Tensor, number: float) -> Tensor:
    x[0] = number
    return x


TOO_LARGE: dict[str, Callable[[Tensor, float], Tensor]] = {
    "an element": set_one,
    "one element filled": lambda x, number: torch.full((1, 1), number, dtype=x.dtype, device=x.device),
    "elements filled": lambda x, number: x.fill_(number),
    "filled by a tensor": lambda x, number: x.fill_(torch.tensor(number)),
    "filled by a tensor, 8 bits": lambda x, number: x.to(torch.int8).fill_(torch.tensor(300)),
    "a weight": lambda x, number: torch.lerp(x, 2 * x, number),
}


@pytest.mark.parametrize("number", [70000.0, -1e9, 1e39])
@pytest.mark.parametrize("name", TOO_LARGE)
def test_numbers_too_large_for_16_bits(name: str, number: float, device: torch.device, mode: str) -> None:
    """The CPU takes some, which become infinite, and refuses others."""
    x = torch.ones(3, dtype=torch.float16)
    expected = outcome(lambda: TOO_LARGE[name](x.clone(), number))
    actual = outcome(lambda: TOO_LARGE[name](x.to(device), number))
    if isinstance(expected, type):
        assert actual is expected
    else:
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("number", [300, -300, 2**20, -(2**31) - 1, 2**40, -(2**63), 2**64 - 1, 123456, 1234567])
def test_what_is_said_of_a_bound(number: int, device: torch.device, mode: str) -> None:
    """The number is printed as PyTorch's CPU prints it."""

    def bounded(on: torch.device) -> Tensor:
        return torch.zeros(3, dtype=torch.int8, device=on).clamp(**{"min" if number > 0 else "max": number})

    with pytest.raises(RuntimeError, match="outside the representable range of Char") as on_cpu:
        bounded(torch.device("cpu"))
    assert str(check_refused(bounded, device)) == str(on_cpu.value)


@pytest.mark.parametrize(("dtype", "number"), [(torch.float16, 1e6), (torch.bfloat16, 1e39), (torch.int16, 1e5)])
def test_what_is_said_of_a_number(dtype: torch.dtype, number: float, device: torch.device, mode: str) -> None:
    def filled(on: torch.device) -> Tensor:
        return torch.zeros(3, dtype=dtype, device=on).fill_(number)

    with pytest.raises(RuntimeError, match="without overflow") as on_cpu:
        filled(torch.device("cpu"))
    assert str(check_refused(filled, device)) == str(on_cpu.value)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64, torch.float32], ids=str)
def test_bounds_beyond_int64(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    x = torch.tensor([0, 5, 200]).to(dtype)
    for bound in (2**63, 2**64 - 1):
        check(lambda on, bound=bound: [x.to(on).clamp(max=bound), x.to(on).clamp_max(bound)], device)
        if dtype.is_floating_point:
            check(lambda on, bound=bound: x.to(on).clamp(min=bound), device)
        else:
            check_refused(lambda on, bound=bound: x.to(on).clamp(min=bound), device)


def test_a_dropout_without_training_takes_any_number(device: torch.device, mode: str) -> None:
    def dropout(on: torch.device, train: bool | None) -> object:
        return torch.native_dropout(torch.ones(3, device=on), 2.0, train)

    check(lambda on: dropout(on, False), device)
    for train in (True, None):
        error = check_refused(lambda on, train=train: dropout(on, train), device)
        assert "bernoulli_ expects p to be in [0, 1]" in str(error)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.int64], ids=str)
def test_integers_divided_by_zero(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """A number is refused at the line; a tensor, which the host does not read, at the next wait."""
    for divide in (torch.floor_divide, torch.remainder, torch.fmod):
        x = torch.tensor([5, 0], dtype=dtype, device=device)
        check_refused(lambda on, divide=divide: divide(torch.tensor([5, 0], dtype=dtype, device=on), 0), device)
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            divide(x, x).cpu()
        assert divide(x[:0], 0).numel() == 0
        assert divide(x, 2).tolist() == divide(x.cpu(), 2).tolist()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_floats_wrap_in_small_integers(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """As in PyTorch's CPU and CUDA kernels. XLA's own conversion gives the nearest number of the type."""
    x = torch.tensor([-1.0, -2.5, 300, -128.75, 40_000, 65_000, -32_769, 0.5, math.nan], dtype=dtype)
    check(lambda on: [x.to(on).to(small) for small in (torch.uint8, torch.int8, torch.int16)], device)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64], ids=str)
def test_powers_of_integers_wrap(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    base = torch.tensor([0, 1, 2, 3, 7, 125], dtype=dtype)
    exponents = torch.tensor([63, 64, 65, 100, 127, 0], dtype=dtype)
    check(lambda on: [base.to(on) ** exponents.to(on), exponents.to(on) ** base.to(on), 3 ** exponents.to(on)], device)
    check(lambda on: [base.to(on) ** number for number in (5, 63, 64, 100, 127)], device)


def test_a_false_times_what_is_not_finite(device: torch.device, mode: str) -> None:
    """Without care, XLA would give 0."""
    mask = torch.tensor([False, True, False, True])
    wild = torch.tensor([math.nan, math.nan, -math.inf, -2.0])

    def program(on: torch.device) -> object:
        m, w = mask.to(on), wild.to(on)
        products = [m * w, m.float() * w, m * math.nan, m.to(torch.bfloat16) * w.to(torch.bfloat16), (w == w) * w]
        # -0 and 0 differ in their reciprocals.
        return products, [1 / (m * -2.0), 1 / (m / -0.5), m / 0.0, 1 / (m // -0.5)], (m * torch.complex(w, w))[1:2]

    check(program, device)


@pytest.mark.filterwarnings("ignore:Use of .* on expanded tensors is deprecated")
def test_filling_what_is_broadcast(device: torch.device, mode: str) -> None:
    """PyTorch allows it for masked_fill_: an element is filled if any of its positions is true."""

    def program(on: torch.device) -> object:
        x = torch.tensor([-4, 4, -2], device=on)
        mask = torch.tensor([[False, True, False], [True, False, False]], device=on)
        shown = x.expand(2, 3)
        filled = shown.masked_fill(mask, 7)
        shown.masked_fill_(mask, 1)
        # Other forms of the same.
        y, z, rows = (torch.tensor([-4, 4, -2], device=on) for _ in range(3))
        y.expand(2, 3)[mask] = torch.tensor([7], device=on)
        z.expand(2, 3).index_put_((mask,), torch.tensor(7, device=on))
        rows.expand(2, 3)[mask[:, 1]] = torch.tensor([[7]], device=on)
        return x, filled, y, z, rows

    check(program, device)


def test_copying_to_itself(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> object:
        x = torch.arange(3, device=on)
        shown = x[0].expand(2)
        shown[None, :] = shown[None, :]
        x.copy_(x.view(3))
        return x

    check(program, device)
    check_refused(lambda on: torch.arange(3, device=on)[0].expand(2).copy_(torch.arange(2, device=on)), device)


def test_writes_to_memory_that_overlaps_with_itself(device: torch.device, mode: str) -> None:
    """Where the CPU refuses it. The meta kernel of put_ does not check that."""

    def put(on: torch.device) -> object:
        shown = torch.zeros(1, device=on).expand(4)
        return shown.put_(torch.tensor([0], device=on), torch.tensor([1.0], device=on))

    assert "more than one element of the written-to tensor" in str(check_refused(put, device))
    check_refused(lambda on: torch.zeros(1, device=on).expand(4).uniform_(), device)
    check_refused(lambda on: torch.zeros(1, device=on).expand(4).mul_(2), device)


@pytest.mark.filterwarnings("ignore:Use of index_.* on expanded tensors is deprecated")
def test_writes_by_index_to_expanded_tensors(device: torch.device, mode: str) -> None:
    """PyTorch allows them: all rows are the same memory, so each index means that one."""

    def program(on: torch.device) -> object:
        given = [torch.arange(5.0, device=on) for _ in range(5)]
        filled, put, added, placed, column = (x.expand(3, 5) for x in given)
        rows, places = torch.tensor([1, -1], device=on), torch.tensor([3, 1], device=on)
        filled.index_fill_(0, rows, 9)
        put[rows] = torch.ones(5, device=on)
        added.index_put_((rows,), torch.ones(5, device=on), accumulate=True)
        placed[rows, places] = torch.full((2,), 8.0, device=on)
        column.unsqueeze(0).unbind(2)[0][:, rows] += 1
        return given

    check(program, device)


WRITES_OF_SELF: dict[str, Callable[[Tensor], object]] = {
    "put_ of itself by itself": lambda x: x.put_(x, x),
    "put_ that adds itself": lambda x: x.put_(x.clone(), x, accumulate=True),
    "put_ by itself": lambda x: x.put_(x, x.clone()),
    "put_ of a part": lambda x: x.put_(x[:2].clone(), x[1:3]),
    "index_fill_": lambda x: x.index_fill_(0, x, 7),
    "index_put_": lambda x: x.index_put_((x,), x),
    "index_add_": lambda x: x.index_add_(0, x, x),
    "scatter_": lambda x: x.scatter_(0, x, x),
}


@pytest.mark.parametrize("write", WRITES_OF_SELF.values(), ids=WRITES_OF_SELF)
def test_writes_of_what_is_written(write: Callable[[Tensor], object], device: torch.device, mode: str) -> None:
    """PyTorch refuses an argument in the memory that is written, except where each element is read once."""
    error = check_refused(lambda on: write(torch.tensor([2, 0, 1, 3], device=on)), device)
    assert "single memory location" in str(error)


def test_elements_that_are_read_once(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> object:
        x, mask = torch.tensor([2, 0, 1, 3], device=on), torch.tensor([True, False, True], device=on)
        return x.add_(x).mul_(x), x.masked_fill_(x > 4, 5), mask.logical_and_(mask), x.where(x > 1, x)

    check(program, device)


def test_empty_products_of_booleans(device: torch.device, mode: str) -> None:
    """PyTorch checks the type only if there are elements to multiply."""

    def program(on: torch.device) -> object:
        x = torch.ones(3, 3, dtype=torch.bool, device=on)
        none = x[:0]
        return none @ x, none @ x[0], none.t() @ none, none[:, None] @ x

    check(program, device)
    check_refused(
        lambda on: torch.ones(2, 2, dtype=torch.bool, device=on) @ torch.ones(2, 2, dtype=torch.bool, device=on), device
    )


def test_arguments_of_several_dtypes(device: torch.device, mode: str) -> None:
    """The dtype that they promote to decides."""

    def program(on: torch.device) -> object:
        whole, flags = torch.arange(4, device=on), torch.arange(4, device=on) > 1
        real = torch.linspace(-1, 2, 4, device=on)
        losses = [loss(whole, real) for loss in (F.mse_loss, F.smooth_l1_loss, F.l1_loss)]
        losses.append(F.huber_loss(real, whole))
        return losses, torch.addcmul(flags, real, real), torch.hypot(whole, real), torch.clamp(whole, max=real)

    check(program, device)
    check_refused(lambda on: F.huber_loss(torch.arange(4, device=on), torch.ones(4, device=on)), device)


def test_logical_operators_lay_out_as_comparisons_do(device: torch.device) -> None:
    def program(on: torch.device) -> object:
        x, y = torch.ones(2, 1, 3, dtype=torch.float16, device=on), torch.eye(3, 2, device=on).t()
        return [operator(x, y) for operator in (torch.logical_and, torch.logical_or, torch.logical_xor, torch.lt)]

    check(program, device)


def test_filling_a_mask_by_its_own_transpose(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> None:
        mask = torch.eye(3, dtype=torch.bool, device=on)
        mask.t()[mask] = 0

    check_refused(program, device)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
def test_sums_of_complex_numbers_without_nan(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    """CUDA supports these, the CPU does not. On the CPU, NaN is replaced by zero first."""
    nan = float("nan")
    values = torch.tensor([[1 + 2j, complex(nan, 1), -3j], [complex(2, nan), 4, 5 + 1j]], dtype=dtype)
    here, there = values.clone().requires_grad_(), values.to(device).requires_grad_()
    expected, result = here.where(~here.isnan(), 0).sum(1), there.nansum(1)
    torch.testing.assert_close(result.cpu(), expected)
    torch.testing.assert_close(there.nanmean().cpu(), here.where(~here.isnan(), 0).sum() / 4)
    expected.abs().sum().backward()
    result.abs().sum().backward()
    torch.testing.assert_close(there.grad.cpu(), here.grad)


def test_sums_with_the_ends_of_int64(device: torch.device, mode: str) -> None:
    def program(on: torch.device) -> list[torch.Tensor]:
        x = torch.arange(-2, 3, device=on)
        return [x + 2**63, x - 2**63, x + (2**63 - 1), x * (2**62)]

    check(program, device)


@pytest.mark.parametrize("number", [2**63, 2**64 - 1])
def test_integers_that_int64_does_not_hold(number: int, device: torch.device, mode: str) -> None:
    for dtype in (torch.int32, torch.int64, torch.float32):
        check(lambda d, dtype=dtype: torch.tensor([1, -1], dtype=dtype, device=d) + number, device)
        check(lambda d, dtype=dtype: number - torch.tensor([1, -1], dtype=dtype, device=d), device)
        check(lambda d, dtype=dtype: torch.tensor([3, -1], dtype=dtype, device=d) * number, device)
    check(lambda d: torch.tensor([1.0, 1e30], device=d) > number, device)
    check(lambda d: torch.full((2,), number, dtype=torch.uint64, device=d), device)
    check(lambda d: torch.full((2,), number, dtype=torch.float64, device=d), device)
    check_refused(lambda d: torch.zeros(2, dtype=torch.int64, device=d).fill_(number), device)


FILLS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "masked_fill": lambda x, value: x.masked_fill(x > 1, value),
    "masked_fill_": lambda x, value: x.clone().masked_fill_(x > 1, value),
    "index_fill": lambda x, value: x.index_fill(0, torch.tensor([1], device=x.device), value),
    "index_fill_": lambda x, value: x.clone().index_fill_(1, torch.tensor([0, 2], device=x.device), value),
    "fill_": lambda x, value: x.clone().fill_(value),
    "fill": lambda x, value: torch.fill(x, value),
}


@pytest.mark.parametrize("name", FILLS)
def test_tensors_of_the_cpu_without_dimensions_are_filled_in(name: str, device: torch.device, mode: str) -> None:
    """As on CUDA, whose kernels read the number. Its gradient is on the CPU, too."""
    fill, x = FILLS[name], torch.arange(6.0).reshape(2, 3)
    for value in (torch.tensor(7.0), torch.tensor(3), torch.tensor(torch.finfo(torch.float32).min)):
        assert torch.equal(fill(x.to(device), value).cpu(), fill(x, value))
    compiled = torch.compile(fill)(x.to(device), torch.tensor(7.0))
    assert torch.equal(compiled.cpu(), fill(x, torch.tensor(7.0)))
    gradients = []
    for place in (torch.device("cpu"), device):
        value = torch.tensor(2.0, requires_grad=True)
        fill(x.to(place), value).sum().backward()
        gradients.append(value.grad)
    assert torch.equal(*gradients)


INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint16, torch.uint32, torch.uint64]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_floats_at_the_ends_of_integers(device: torch.device, dtype: torch.dtype) -> None:
    """They are rounded towards zero."""
    limits = torch.iinfo(dtype)
    large = limits.bits == 64
    numbers = [limits.max + 0.5, limits.max + 1.0, limits.min - 0.5, limits.min - 1.0, limits.max - 0.5]
    for number in [2.0**63, 2.0**64, 1e19, 9e18, -(2.0**63), -9e18, -1e19] if large else numbers:
        x, mine = torch.zeros(2, dtype=dtype), torch.zeros(2, dtype=dtype, device=device)
        expected = outcome(lambda x=x, number=number: x.fill_(number))
        actual = outcome(lambda mine=mine, number=number: mine.fill_(number))
        assert actual is expected or torch.equal(actual[0], expected[0]), number


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float32, torch.uint8], ids=str
)
def test_a_complex_number_is_no_real_one(device: torch.device, dtype: torch.dtype) -> None:
    for sizes in ((), (1,), (2,)):
        check_refused(lambda d, sizes=sizes: torch.full(sizes, 1j, dtype=dtype, device=d), device)
    check_refused(lambda d: torch.scalar_tensor(1j, dtype=dtype, device=d), device)
    check_refused(lambda d: set_one(torch.zeros(2, dtype=dtype, device=d), 1j), device)


@pytest.mark.parametrize("number", [1e9, 1e300, 1e300j, 2.5])
def test_large_numbers_of_complex32(device: torch.device, number: complex) -> None:
    for sizes in ((), (1,), (2,)):
        x = outcome(lambda sizes=sizes: torch.full(sizes, number, dtype=torch.complex32))
        mine = outcome(lambda sizes=sizes: torch.full(sizes, number, dtype=torch.complex32, device=device))
        assert mine is x or str(mine) == str(x)
