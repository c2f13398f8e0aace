"""Draws of no elements: PyTorch's CPU takes other element types and other numbers for them than for other draws."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

DTYPES = (
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2fnuz),
    *(torch.complex128, torch.complex64, torch.complex32),
    *(torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    torch.bool,
)
Draw = Callable[[Tensor], Tensor]

PAIRS = ((0, 1), (0, 0), (0, -1), (5, 2), (math.nan, 1), (0, math.inf), (0, math.nan), (1e30, 1), (-1e308, 1e308))
RANGES = ((0, 5), (5, 0), (0, 0), (-3, 300), (-(2**63), 2**63 - 1), (0, 2**40))
RATES = (0.5, 0.0, 1.0, -1.0, 2.0, math.nan, math.inf)

# Each takes a tensor without elements.
DRAWS: dict[str, list[Draw]] = {
    "normal_": [lambda x, a=a: x.normal_(*a) for a in PAIRS],
    "cauchy_": [lambda x, a=a: x.cauchy_(*a) for a in PAIRS],
    "log_normal_": [lambda x, a=a: x.log_normal_(*a) for a in PAIRS],
    "uniform_": [lambda x, a=a: x.uniform_(*a) for a in PAIRS],
    "exponential_": [lambda x, rate=rate: x.exponential_(rate) for rate in RATES],
    "geometric_": [lambda x, p=p: x.geometric_(p) for p in RATES],
    "bernoulli_": [lambda x, p=p: x.bernoulli_(p) for p in RATES],
    "bernoulli_.Tensor": [
        lambda x, p=p: x.bernoulli_(torch.empty(0, dtype=p, device=x.device)) for p in (torch.float32, torch.int32)
    ],
    "bernoulli": [torch.bernoulli, *(lambda x, p=p: torch.bernoulli(x, p) for p in RATES)],
    "bernoulli.out": [lambda x: torch.bernoulli(torch.empty(0, device=x.device), out=x)],
    "bernoulli.out of other sizes": [lambda x: torch.bernoulli(torch.empty(0, 7, device=x.device), out=x)],
    "native_dropout": [lambda x, p=p: torch.native_dropout(x, p, True)[0] for p in RATES],
    "random_": [Tensor.random_, *(lambda x, a=a: x.random_(*a) for a in RANGES), lambda x: x.random_(0)],
    "randint": [lambda x, a=a: torch.randint(*a, (2, 0), dtype=x.dtype, device=x.device) for a in RANGES],
    "randint_like": [lambda x, a=a: torch.randint_like(x, *a) for a in RANGES],
    "randn": [lambda x: torch.randn(2, 0, 3, dtype=x.dtype, device=x.device)],
    "randn.out": [lambda x: torch.randn(0, out=x)],
    "randn_like": [torch.randn_like, lambda x: torch.randn_like(x, dtype=torch.int16)],
    "rand": [lambda x: torch.rand(0, dtype=x.dtype, device=x.device)],
    "rand_like": [torch.rand_like],
    "normal.float_float": [lambda x, a=a: torch.normal(*a, (0,), dtype=x.dtype, device=x.device) for a in PAIRS],
    "normal.Tensor_float": [lambda x, a=a: torch.normal(x, a[1]) for a in PAIRS],
    "normal.float_Tensor": [lambda x: torch.normal(0.0, x)],
    "normal.Tensor_Tensor": [lambda x: torch.normal(x, torch.zeros(1, device=x.device))],
    "multinomial": [
        lambda x: torch.multinomial(x.new_empty(0, 3), 2),
        lambda x: torch.multinomial(x.new_empty(2, 0), 1),
    ],
}

# The CPU lacks kernels of 16 bits that the device has.
ONLY_CPU_LACKS = ("not implemented for 'Half'", "not implemented for 'BFloat16'")


def outcome(draw: Draw, dtype: torch.dtype, device: torch.device | str) -> str:
    x = torch.empty(0, dtype=dtype, device=device)
    try:
        result = draw(x)
    except Exception as error:
        # The first sentence: others name the device.
        return f"{type(error).__name__}: {str(error).splitlines()[0]}"
    assert result.device.type == torch.device(device).type
    return f"{result.dtype} {tuple(result.shape)} {result.stride()} {result.tolist()} {x.shape}"


@pytest.mark.parametrize("name", DRAWS)
def test_draws_of_no_elements(name: str, device: torch.device) -> None:
    for dtype in DTYPES:
        for number, draw in enumerate(DRAWS[name]):
            expected = outcome(draw, dtype, "cpu")
            if any(lack in expected for lack in ONLY_CPU_LACKS):
                continue
            assert outcome(draw, dtype, device) == expected, (dtype, number)


def test_generator_does_not_advance(device: torch.device) -> None:
    torch.manual_seed(7)
    expected = torch.rand(3, device=device)
    torch.manual_seed(7)
    torch.randn(0, dtype=torch.int16, device=device)
    torch.empty(0, device=device).uniform_()
    assert torch.equal(torch.rand(3, device=device).cpu(), expected.cpu())


def test_others_are_refused_as_on_the_cpu(device: torch.device) -> None:
    with pytest.raises(NotImplementedError, match="\"randperm\" not implemented for 'Bool'"):
        torch.randperm(3, dtype=torch.bool, device=device)
    with pytest.raises(RuntimeError, match="value cannot be converted to type uint8_t without overflow"):
        torch.randperm(257, dtype=torch.uint8, device=device)
    with pytest.raises(RuntimeError, match="n cannot be greater than 2049 for Half type"):
        torch.randperm(2050, dtype=torch.float16, device=device)
    assert torch.randperm(256, dtype=torch.uint8, device=device).sort().values.tolist() == list(range(256))
    with pytest.raises(RuntimeError, match="cannot sample n_sample <= 0 samples"):
        torch.multinomial(torch.ones(2, 3, device=device), 0)
    with pytest.raises(RuntimeError, match="bernoulli_ expects p to be in \\[0, 1\\], but got p=-1"):
        torch.native_dropout(torch.ones(3, device=device), 2.0, True)
