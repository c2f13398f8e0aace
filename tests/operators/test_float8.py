"""Tensors of float8 and of 4-bit floats: what PyTorch's CPU does with them, and products with scales."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DTYPES = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
EXPONENTS, PAIRS = torch.float8_e8m0fnu, torch.float4_e2m1fn_x2
SOURCES = (torch.float32, torch.float16, torch.float64, torch.bfloat16)


def numbers() -> Tensor:
    """All numbers of float16, and some around the largest numbers of float8."""
    halves = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16).view(torch.float16).float()
    return torch.cat([halves, torch.tensor([464.0, 464.1, 480.0, 61440.0, 248.0, 1e9, -1e9, -1e-30])])


def bits_without_nan(x: Tensor) -> Tensor:
    """The bytes. There are several NaN, and which one a conversion gives is not defined."""
    return torch.where(x.float().isnan(), 0x7F, x.view(torch.uint8))


@pytest.mark.parametrize("dtype", [*DTYPES, EXPONENTS])
@pytest.mark.parametrize("source", SOURCES)
def test_conversion(dtype: torch.dtype, source: torch.dtype, device: torch.device, mode: str) -> None:
    x = numbers().to(source)
    expected = x.to(dtype)
    assert torch.equal(bits_without_nan(x.to(device).to(dtype).cpu()), bits_without_nan(expected))
    back = expected.to(device).to(source).cpu()
    torch.testing.assert_close(back, expected.to(source), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("source", SOURCES)
def test_conversion_near_middles(dtype: torch.dtype, source: torch.dtype, device: torch.device) -> None:
    """A number close to the middle between two is rounded once. float16 would round it to the middle."""
    exact = torch.arange(256, dtype=torch.uint8).view(dtype).float()
    exact = exact[exact.isfinite()].sort().values
    middles = (exact[1:] + exact[:-1]) / 2
    steps = torch.tensor([0, 1, -1, 2**10, -(2**10), 2**13, -(2**13)], dtype=torch.int32)
    x = (middles.view(torch.int32)[:, None] + steps).view(torch.float32).to(source)
    result = x.to(device).to(dtype).cpu()
    assert torch.equal(bits_without_nan(result), bits_without_nan(x.to(dtype)))


def test_exponents_near_middles(device: torch.device, mode: str) -> None:
    exact = torch.arange(256, dtype=torch.uint8).view(EXPONENTS)
    powers = exact.to(device).float().cpu()
    torch.testing.assert_close(powers, exact.float(), rtol=0, atol=0, equal_nan=True)
    middles = torch.cat([exact[:-1].float(), exact[:-1].float() * 1.5, torch.tensor([0.0, torch.inf, -3.0])])
    steps = torch.tensor([0, 1, -1, 2**21, -(2**21)], dtype=torch.int32)
    x = torch.cat([(middles.view(torch.int32)[:, None] + steps).view(torch.float32).flatten(), torch.tensor([0.0])])
    result = x.to(device).to(EXPONENTS).cpu()
    assert torch.equal(result.view(torch.uint8), x.to(EXPONENTS).view(torch.uint8))


SERVED: dict[str, Callable[[Tensor, Tensor, Tensor], object]] = {
    "mul": lambda x, y, _: x * y,
    "abs": lambda x, _, __: x.abs(),
    "eq": lambda x, y, _: x == y,
    "ne": lambda x, y, _: x != y,
    "isnan": lambda x, _, __: x.isnan(),
    "isfinite": lambda x, _, __: x.isfinite(),
    "mm": lambda x, y, _: x @ y,
    "cat": lambda x, y, _: torch.cat([x, y]),
    "index": lambda x, _, index: x[index],
    "index_put": lambda x, y, index: x.index_put((index,), y[:2]),
    "where": lambda x, y, _: torch.where(x.float() > 0, x, y),
    "transposed": lambda x, _, __: x.t().contiguous(),
    "bytes": lambda x, _, __: x.view(torch.uint8),
    "from bytes": lambda x, _, __: x.view(torch.uint8).flip(0).view(x.dtype),
    "fill": lambda x, _, __: x.clone().fill_(1.3),
    "full": lambda x, _, __: torch.full((3,), 2.7, dtype=x.dtype, device=x.device),
    "tensor": lambda x, _, __: torch.tensor([1.0, 2.3], dtype=x.dtype, device=x.device),
    "eye": lambda x, _, __: torch.eye(3, dtype=x.dtype, device=x.device),
    "pad": lambda x, _, __: torch.nn.functional.pad(x, (1, 1)),
    "roll": lambda x, _, __: x.roll(1),
    "any": lambda x, _, __: x.any(),
    "item": lambda x, _, __: torch.tensor(x[0, 1].item()),
    "equal": lambda x, y, _: torch.tensor([torch.equal(x, x.clone()), torch.equal(x, y)]),
}
REFUSED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda x, y: x + y,
    "neg": lambda x, _: -x,
    "lt": lambda x, y: x < y,
    "sum": lambda x, _: x.sum(),
    "exp": lambda x, _: x.exp(),
    "sort": lambda x, _: x.sort(),
    "promotion": lambda x, y: x * y.float(),
    "a number that does not fit": lambda x, _: x.fill_(1e9),
}


def operands(dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 4).to(dtype), torch.randn(4, 4).to(dtype), torch.tensor([0, 2])]


# The CPU refuses these of exponents.
OF_NUMBERS = ("abs", "mm", "pad", "index_put")


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *((name, dtype) for name in SERVED for dtype in (torch.float8_e4m3fn, torch.float8_e5m2fnuz)),
        *((name, EXPONENTS) for name in SERVED if name not in OF_NUMBERS),
    ],
)
def test_served(name: str, dtype: torch.dtype, device: torch.device, mode: str) -> None:
    call, arguments = SERVED[name], operands(dtype)
    expected = call(*arguments)
    result = call(*(argument.to(device) for argument in arguments))
    assert isinstance(result, Tensor)
    assert isinstance(expected, Tensor)
    assert result.dtype == expected.dtype
    torch.testing.assert_close(result.cpu().float(), expected.float(), rtol=0, atol=0)


MOVED: dict[str, Callable[[Tensor], Tensor]] = {
    "copy": lambda x: x.clone(),
    "cat": lambda x: torch.cat([x, x.flip(0)]),
    "transposed": lambda x: x.t().contiguous(),
    "index": lambda x: x[torch.tensor([3, 0], device=x.device)],
    "slice": lambda x: x[1:, ::2].contiguous(),
    "stack": lambda x: torch.stack([x, torch.zeros_like(x)]),
    "assignment": lambda x: torch.zeros_like(x).index_copy_(0, torch.tensor([1, 2], device=x.device), x[:2]),
    "bytes": lambda x: x.view(torch.uint8) + 1,
}


def pairs(rows: int = 80, width: int = 96) -> Tensor:
    torch.manual_seed(0)
    return torch.randint(0, 256, (rows, width), dtype=torch.uint8).view(PAIRS)


@pytest.mark.parametrize("name", MOVED)
def test_pairs_of_floats_are_moved(name: str, device: torch.device, mode: str) -> None:
    """The CPU does not move them in each way, but bytes."""
    result = MOVED[name](pairs().to(device))
    expected = MOVED[name](pairs().view(torch.uint8))
    assert torch.equal(result.view(torch.uint8).cpu(), expected)
    assert result.dtype == (torch.uint8 if name == "bytes" else PAIRS)


def test_pairs_of_floats_that_are_transposed_come_and_go(device: torch.device) -> None:
    there = pairs().t().to(device)
    assert torch.equal(there.view(torch.uint8).cpu(), pairs().view(torch.uint8).t())
    back = pairs(96, 80).t().clone().t()
    back.t().copy_(there.t().contiguous())
    assert torch.equal(back.view(torch.uint8), pairs().view(torch.uint8).t())


def test_pairs_of_floats_have_no_numbers(device: torch.device) -> None:
    x = pairs().to(device)
    for call in (x.float, lambda: x + x, lambda: x.fill_(2.0), lambda: torch.ones(3, device=device).to(PAIRS)):
        with pytest.raises(NotImplementedError, match="Float4_e2m1fn_x2"):
            call()


@pytest.mark.parametrize("name", REFUSED)
def test_refused_as_on_the_cpu(name: str, device: torch.device) -> None:
    call = REFUSED[name]
    x, y, _ = operands(torch.float8_e4m3fn)
    with pytest.raises((RuntimeError, NotImplementedError)) as expected:
        call(x, y)
    with pytest.raises(type(expected.value), match="Float8"):
        call(x.to(device), y.to(device))


def test_exponents_have_no_products(device: torch.device) -> None:
    x = torch.ones(2, 2, device=device).to(EXPONENTS)
    for call in (lambda: x @ x, lambda: x.abs()):
        with pytest.raises(NotImplementedError, match="not implemented for 'Float8_e8m0fnu'"):
            call()


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("scales", ["of the matrix", "of rows and columns"])
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_scaled_mm(dtype: torch.dtype, scales: str, bias: bool, device: torch.device, mode: str) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(32, 64).to(dtype), torch.randn(48, 64).to(torch.float8_e4m3fn).t()
    scale_a, scale_b = (
        (torch.tensor(0.5), torch.tensor(3.0)) if scales == "of the matrix" else (torch.rand(32, 1), torch.rand(1, 48))
    )
    added = torch.randn(48, dtype=torch.bfloat16) if bias else None
    expected = (a.float() @ b.float()) * scale_a * scale_b + (0 if added is None else added.float())
    placed = [x.to(device) if x is not None else None for x in (a, b, scale_a, scale_b, added)]
    result = torch._scaled_mm(*placed, out_dtype=torch.bfloat16, use_fast_accum=True)  # type: ignore[arg-type]
    torch.testing.assert_close(result.cpu(), expected.bfloat16(), rtol=1e-2, atol=1e-2)


def test_scales_of_blocks_are_refused(device: torch.device) -> None:
    a = torch.ones(32, 64, device=device).to(torch.float8_e4m3fn)
    scale = torch.ones(32, 4, device=device)
    with pytest.raises((RuntimeError, ValueError)):
        torch._scaled_mm(a, a.t(), scale, scale.t(), out_dtype=torch.bfloat16)
