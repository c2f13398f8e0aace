"""Tensors: creation, dtypes with conversions and promotion, numbers, sizes, out=."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.helpers import DTYPES, check, check_refused, check_started_python

Tensor = torch.Tensor

NAMES = [str(dtype).removeprefix("torch.") for dtype in DTYPES]


def numbers(dtype: torch.dtype) -> Tensor:
    return torch.tensor([[0, 1, 3], [2, 0, 5]]).to(dtype)


# ---- creation --------------------------------------------------------------------------------------------------

CREATIONS: dict[str, Callable[[torch.device], Tensor]] = {
    "tensor": lambda d: torch.tensor([[1.5, 2.0], [3.0, -4.0]], device=d),
    "tensor of int": lambda d: torch.tensor([1, 2], device=d),
    "tensor of bool": lambda d: torch.tensor(True, device=d),
    "tensor of complex": lambda d: torch.tensor([1j, 2], device=d),
    "nothing": lambda d: torch.tensor([], device=d),
    "zeros": lambda d: torch.zeros(2, 3, dtype=torch.float16, device=d),
    "ones": lambda d: torch.ones((2, 0), dtype=torch.bool, device=d),
    "full": lambda d: torch.full((2, 2), 7, device=d),
    "full of float": lambda d: torch.full((), 7.5, device=d),
    "arange": lambda d: torch.arange(5, device=d),
    "arange with step": lambda d: torch.arange(1.0, 2.0, 0.25, device=d),
    "arange downwards": lambda d: torch.arange(5, -3, -2, dtype=torch.int16, device=d),
    "linspace": lambda d: torch.linspace(-1, 1, 5, device=d),
    "logspace": lambda d: torch.logspace(0, 3, 4, device=d),
    "eye": lambda d: torch.eye(2, 3, dtype=torch.int64, device=d),
    "empty": lambda d: torch.empty(0, 3, device=d),
    "empty_strided": lambda d: torch.empty_strided((2, 3), (1, 2), device=d).fill_(1),
    "zeros_like": lambda d: torch.zeros_like(torch.ones(2, 3, device=d).t()),
    "ones_like": lambda d: torch.ones_like(torch.zeros(2, 3, device=d), dtype=torch.int32),
    "full_like": lambda d: torch.full_like(torch.zeros(3, device=d), 2.5),
    "new_tensor": lambda d: torch.zeros(1, device=d).new_tensor([1, 2]),
    "new_full": lambda d: torch.zeros(1, dtype=torch.int8, device=d).new_full((2,), 3),
    "new_zeros": lambda d: torch.zeros(1, device=d).new_zeros(2, 2),
    "tril_indices": lambda d: torch.tril_indices(3, 3, device=d),
    "as_tensor": lambda d: torch.as_tensor([1.0, 2.0], device=d),
    "scalar_tensor": lambda d: torch.scalar_tensor(3, device=d),
    "complex": lambda d: torch.complex(torch.ones(2, device=d), torch.zeros(2, device=d)),
}


@pytest.mark.parametrize("create", CREATIONS.values(), ids=CREATIONS.keys())
def test_creation(create: Callable[[torch.device], Tensor], device: torch.device) -> None:
    check(create, device)
    assert create(device).device == torch.device("tpu:0")


def test_likes_leave_the_device(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    assert torch.full_like(x, 3, device="cpu").tolist() == [3, 3]
    assert torch.zeros_like(x, device="cpu").device.type == "cpu"
    assert torch.ones_like(torch.zeros(2), device=device).is_tpu
    assert x.new_ones(2, device="cpu").device.type == "cpu"
    assert torch.zeros_like(x, device="meta").device.type == "meta"


def test_default_device(device: torch.device) -> None:
    torch.set_default_device("tpu")
    try:
        assert torch.get_default_device().type == "tpu"
        made = [torch.zeros(2), torch.tensor([1, 2]), torch.arange(3), torch.nn.Linear(2, 2).weight, torch.rand(2)]
        assert all(x.device == torch.device("tpu:0") for x in made)
    finally:
        torch.set_default_device(None)
    with torch.device("tpu"):
        assert torch.ones(2).is_tpu
        assert torch.ones(2, device="cpu").device.type == "cpu"
    with torch.device(device):
        assert torch.nn.LayerNorm(3).weight.is_tpu
    assert torch.ones(2).device.type == "cpu"


# ---- dtypes ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_dtype_goes_there_and_back(dtype: torch.dtype, device: torch.device) -> None:
    x = numbers(dtype)
    y = x.to(device)
    assert (y.dtype, y.device, y.element_size()) == (dtype, torch.device("tpu:0"), x.element_size())
    assert torch.equal(y.cpu(), x)
    assert torch.equal(x.t().to(device).cpu(), x.t())


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_unsigned_dtypes(dtype: torch.dtype, device: torch.device, mode: str) -> None:
    highest = torch.iinfo(dtype).max

    def program(d: torch.device) -> Any:
        x = torch.tensor([0, 7, highest - 1, highest], dtype=dtype, device=d)
        y = torch.tensor([3, 7, 1, 1], dtype=dtype, device=d)
        return x, x.view(2, 2).t(), x == y, x.to(torch.float64), y.to(torch.int8).to(dtype), x.tolist()

    check(program, device)
    # The CPU has no arithmetic for these.
    x = torch.tensor([5, highest], dtype=dtype, device=device)
    assert (x + x).tolist() == [10, highest - 1]
    assert (x // 2).tolist() == [2, highest // 2]


@pytest.mark.parametrize("source", DTYPES, ids=NAMES)
def test_conversions(source: torch.dtype, device: torch.device) -> None:
    values = {
        torch.bool: [True, False],
        torch.uint8: [0, 1, 127, 128, 255],
        torch.int8: [0, -1, 127, -128],
        torch.int16: [0, -1, 255, 256, 32767],
        torch.int32: [0, -1, 65537, 16777217, 2**31 - 1],
        torch.int64: [0, -1, 65537, 2**31, 2**40 + 1],
        torch.complex64: [1 + 2j, -3.5, 0],
    }.get(source, [0.0, -0.0, 1.5, 2.5, -2.75, 100.0])

    def program(device: torch.device) -> object:
        x = torch.tensor(values, dtype=source).to(device)
        results = []
        for target in DTYPES:
            unsigned = target is torch.uint8 and (source.is_floating_point or source.is_complex)
            # In C, the conversion of negative floats to unsigned integers is undefined.
            y = x[: 1 if source.is_complex else 2] if unsigned else x
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # "Casting complex values to real discards the imaginary part"
                results.append(y.to(target))
        return results

    check(program, device)


def test_conversion_methods(device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor([1.0, 0.0, 2.75], device=device)
        y = torch.ones(2, device=device)
        return [
            [
                x.int(),
                x.long(),
                x.half(),
                x.bfloat16(),
                x.double(),
                x.bool(),
                x.byte(),
                x.char(),
                x.short(),
                x.cfloat(),
            ],
            x.to(x.dtype) is x,
            x.to(device) is x,
            x.to(x.dtype, copy=True) is x,
            x.type_as(x.int()),
            x.to(torch.zeros(1, dtype=torch.int8, device=device)),
            x.float().is_floating_point(),
            y.to(torch.float64).dtype,
        ]

    check(program, device)


def promoted(x: Tensor, y: Any) -> Any:
    """The sum, or the class of the error."""
    try:
        return x + y
    except (RuntimeError, TypeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("left", DTYPES, ids=NAMES)
def test_promotion_of_tensors(left: torch.dtype, device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = numbers(left).to(device)
        others = [numbers(right).to(device) for right in DTYPES]
        # A 0-d tensor has lower priority than one with dimensions, on the device and on the CPU.
        others += [torch.tensor(2, dtype=right).to(device) for right in DTYPES]
        others += [torch.tensor(2, dtype=right) for right in DTYPES]
        return [promoted(x, y) for y in others], [torch.result_type(x, y) for y in others]

    check(program, device)


@pytest.mark.parametrize("dtype", DTYPES, ids=NAMES)
def test_promotion_of_numbers(dtype: torch.dtype, device: torch.device) -> None:
    def program(device: torch.device) -> object:
        tensors = [numbers(dtype).to(device), torch.tensor(3, dtype=dtype).to(device)]
        sums = [promoted(x, number) for x, number in itertools.product(tensors, (True, 2, 2.5, 1j))]
        return sums, tensors[0] / 2, tensors[0] == 3.0, tensors[0] / tensors[1], tensors[0].sum()

    check(program, device)


def test_number_operators(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor([1.0, 2.0, 4.0], device=device)
        i = torch.tensor([1, 2, 4], device=device)
        return [
            [2 - x, 2 / x, 2**x, 7 % i, 7 // i, 1 - i, -x, abs(x), x**2, x**0.5, i**2, x // 3, x % 3, i / 2],
            [i << 1, i >> 1, i & 3, i | 8, i ^ 1, ~i, 3 & i, x > 1, x <= 2.0, i == 2, x != 1, i // 2.0],
            [x + float("inf"), x * float("nan"), i + 2**40, i * 1.5, x.add(i, alpha=3), x * True],
        ]

    check(program, device)


def test_augmented_assignment(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor([5.0, 2.0, 4.0], device=device)
        same = x
        x += 1
        x -= torch.ones(3, device=device)
        x *= 3
        x /= 2
        x //= 2
        x %= 3
        x **= 2
        i = torch.tensor([5, 3], device=device)
        i <<= 2
        i >>= 1
        i &= 7
        i |= 8
        i ^= 1
        return x, same is x, i

    check(program, device)
    check_refused(lambda d: torch.ones(2, dtype=torch.int64, device=d).add_(1.5), device)
    check_refused(lambda d: torch.ones(2, dtype=torch.bool, device=d).add_(1), device)
    check_refused(lambda d: torch.ones(2, dtype=torch.int64, device=d).div_(2), device)


# ---- sizes -----------------------------------------------------------------------------------------------------


def test_no_dimensions(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.tensor(3.0, device=device)
        y = x.view(1, 1)
        y += 1
        x.add_(1)
        return [x, y, x + x, x.sum(), x.sum(0), x.max(), x.unsqueeze(0), x.expand(2, 2), x.reshape(-1), x[...], x[None]]

    check(program, device)


def test_no_elements(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.zeros(0, 3, device=device)
        x.add_(1)
        x[:, 1] = 2
        full = torch.arange(3.0, device=device)
        return [
            [x, x + 1, x * x, x.sum(), x.sum(0), x.sum(1), x.prod(), x.mean(), x.t(), x.t() @ x, x @ x.t(), x.cpu()],
            [torch.cat([x, torch.ones(1, 3, device=device)]), x.reshape(3, 0), x > 0, x.any(), x.all(), x.tolist()],
            [full[3:], full[full > 5], full[torch.zeros(0, dtype=torch.int64, device=device)], x.clone()],
            [full[1:1].copy_(torch.zeros(0)), x.to(torch.int32), full.view(3, 1).expand(3, 0), x.max(1).values],
            [torch.ones(4, 3, device=device).index_add(0, torch.zeros(0, dtype=torch.int64, device=device), x)],
        ]

    check(program, device)
    check_refused(lambda d: torch.zeros(0, device=d).max(), device)
    check_refused(lambda d: torch.zeros(0, 3, device=d).amax(0), device)


def test_many_dimensions(device: torch.device) -> None:
    def program(device: torch.device) -> object:
        x = torch.arange(64.0, device=device).view(2, 2, 2, 2, 2, 2)
        return x.permute(5, 0, 4, 1, 3, 2).contiguous(), x.sum((1, 3, 5)), x[1, :, 0, ..., 1], x.flip(0, 5)

    check(program, device)


# ---- out= ------------------------------------------------------------------------------------------------------


def test_out(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.arange(6.0, device=device).reshape(2, 3)
        out = torch.empty(2, 3, device=device)
        returned = torch.add(x, 1, out=out)
        transposed = torch.zeros(3, 2, device=device).t()
        torch.mul(x, 2, out=transposed)
        wide = torch.zeros(2, 3, dtype=torch.float64, device=device)
        torch.add(x, x, out=wide)
        part = torch.zeros(4, 3, device=device)
        torch.sin(x, out=part[1:3])
        values, indices = torch.empty(2, device=device), torch.empty(2, dtype=torch.int64, device=device)
        torch.max(x, 1, out=(values, indices))
        torch.add(x, 1, out=x)
        empty = torch.empty(0, device=device)
        torch.cat([x, x], out=empty)
        summed = torch.empty(0, dtype=torch.int64, device=device)
        torch.sum(x.long(), 0, out=summed)
        return returned is out, out, transposed, wide, part, values, indices, x, empty, summed

    check(program, device)


def test_out_is_resized_with_a_warning(device: torch.device, mode: str) -> None:
    def program(device: torch.device) -> object:
        x = torch.ones(2, 3, device=device)
        out = torch.zeros(5, device=device)
        with pytest.warns(UserWarning, match="An output with one or more elements was resized") as told:
            torch.add(x, 1, out=out)
        return out, len(told)

    check(program, device)
    # An empty output is resized without a warning.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = torch.empty(0, device=device)
        torch.add(torch.ones(2, 3, device=device), 1, out=out)
    assert out.tolist() == [[2, 2, 2], [2, 2, 2]]


def test_new_tensors_of_other_strides_and_devices(device: torch.device) -> None:
    x = torch.ones(2, device=device)
    for place in (device, torch.device("cpu")):
        made = x.new_empty_strided((3, 2), (9, 2), device=place)
        assert (made.device.type, made.stride()) == (place.type, (9, 2))
    before = torch.tpu.cache_stats()["requests"]
    assert [x.new_empty_strided((n,), (2,)).stride() for n in range(1, 9)] == [(2,)] * 8
    assert torch.tpu.cache_stats()["requests"] == before


CREATIONS: dict[str, Callable[..., torch.Tensor]] = {
    "arange": lambda **out: torch.arange(6, **out),
    "linspace": lambda **out: torch.linspace(0, 1, 6, **out),
    "logspace": lambda **out: torch.logspace(0, 1, 6, **out),
    "eye": lambda **out: torch.eye(2, 3, **out),
    "randperm": lambda **out: torch.randperm(6, **out).sort().values.view(-1),
    "fftfreq": lambda **out: torch.fft.fftfreq(6, **out),
    "full": lambda **out: torch.full((2, 3), 2.0, **out),
}


@pytest.mark.parametrize("name", CREATIONS)
def test_created_tensors_as_out(name: str, device: torch.device, mode: str) -> None:
    """Operators that take no tensor resize a given one without a warning, except arange, which has one of its own."""

    def program(on: torch.device) -> object:
        found = []
        plain = [torch.empty(size, device=on) for size in ((4,), (0,), (12,), (3, 2), (2, 2))]
        for out in (*plain, plain[2][::2], plain[3].t()):
            with warnings.catch_warnings(record=True) as told:
                warnings.simplefilter("always")
                result = CREATIONS[name](out=out)
            found += [result, result.stride(), [str(warning.message).split("(Triggered")[0] for warning in told]]
        return found

    check(program, device)


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
def test_out_takes_the_strides_of_the_result(device: torch.device, mode: str) -> None:
    def program(d: torch.device) -> Any:
        x = torch.arange(24.0, device=d).reshape(6, 4).t()
        resized = []
        for out in (torch.empty(0, device=d), torch.zeros(3, device=d), torch.zeros(24, device=d)):
            torch.add(x, 0.0, out=out)
            resized += [out, out.as_strided((24,), (1,))]
        # The storage is shared with `whole`, which shows the elements in the order of memory.
        whole = torch.zeros(24, device=d, requires_grad=True)
        torch.add(x, 0.0, out=whole.detach())
        return resized, whole.detach(), torch.mm(x, x.t(), out=torch.empty(0, device=d)), torch.sin(x, out=resized[0])

    check(program, device)


def test_out_of_a_wrong_kind_is_refused(device: torch.device, mode: str) -> None:
    x = torch.ones(3)
    integers = torch.zeros(3, dtype=torch.int64)
    check_refused(lambda d: torch.add(x.to(d), 1, out=integers.to(d)), device)
    check_refused(lambda d: torch.sin(integers.to(d), out=integers.to(d)), device)
    with pytest.raises(RuntimeError):
        torch.add(x.to(device), 1, out=torch.zeros(3))
    with pytest.raises(RuntimeError):
        torch.add(x, 1, out=torch.zeros(3, device=device))


def test_a_first_addition_imports_no_compiler() -> None:
    check_started_python("""
import sys
import torch

x = torch.ones(3, device="tpu")
assert ((x + 1) * 2).tolist() == [4, 4, 4]
assert "torch._dynamo" not in sys.modules
""")
