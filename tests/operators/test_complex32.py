"""complex32: pairs of float16, which programs hold as the bits of an uint32 and compute in complex64."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, check, check_refused

pytestmark = pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")

Call = Callable[..., Tensor]


def numbers(shape: tuple[int, ...], seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.complex64, generator=torch.Generator().manual_seed(seed)).to(torch.complex32)


@pytest.mark.parametrize("shape", [(), (0, 3), (3, 4)], ids=str)
@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float32, torch.int32, torch.complex64, torch.complex128], ids=str
)
@pytest.mark.filterwarnings("ignore:Casting complex values")
def test_casts(dtype: torch.dtype, shape: tuple[int, ...], device: torch.device) -> None:
    def program(device: torch.device) -> list[Tensor]:
        x = numbers(shape).to(device)
        return [x, x.clone(), x.to(dtype), x.to(dtype).to(torch.complex32), x.conj().resolve_conj()]

    check(program, device)


def test_numbers_that_float16_does_not_hold(device: torch.device) -> None:
    def program(device: torch.device) -> Tensor:
        parts = torch.tensor([0.1, 65504.0, 65519.0, 65520.0, 1e-8, 6e-8, -0.0, torch.inf, torch.nan], device=device)
        return torch.view_as_real(torch.complex(parts, parts.flip(0)).to(torch.complex32))

    check(program, device)


def test_views_and_writes_through_them(device: torch.device) -> None:
    def program(device: torch.device) -> list[Tensor]:
        x = numbers((4, 6)).to(device)
        x.real[1:].fill_(2)
        torch.view_as_real(x)[0, :, 1] = torch.arange(6.0, dtype=torch.float16, device=device)
        x[:, ::2] *= 1j
        x.view(torch.float16)[3] = 0.5
        bits = x.view(torch.int32)
        return [x, x.T, x[1:, ::2], x.imag, x.conj().imag, bits, torch.view_as_complex(torch.view_as_real(x).clone())]

    check(program, device)


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: torch.add(x, y, alpha=2),
        lambda x, y: x - 1.5j,
        lambda x, y: x * y,
        lambda x, y: x * y.real,
        lambda x, y: x / y,
        lambda x, y: x**2,
        lambda x, y: x.exp(),
        lambda x, y: x.tanh(),
        lambda x, y: x.abs(),
        lambda x, y: x.angle(),
        lambda x, y: x.sqrt(),
        lambda x, y: x.reciprocal(),
        lambda x, y: x.sum(0),
        lambda x, y: x.mean(),
        lambda x, y: x.prod(1),
        lambda x, y: x.cumsum(1),
        lambda x, y: x == y,
        lambda x, y: x.isfinite(),
        lambda x, y: torch.where(x.real > 0, x, y),
        lambda x, y: torch.cat([x, y.flip(0)]),
        lambda x, y: x[torch.tensor([2, 0], device=x.device)],
        lambda x, y: x.index_add(0, torch.tensor([0, 0, 1], device=x.device), y),
        lambda x, y: torch.nn.functional.pad(x, (1, 2)),
        lambda x, y: torch.full_like(x, 2 - 1j),
    ],
)
def test_operators(call: Call, mode: str, device: torch.device) -> None:
    """As in complex64, with the result rounded."""
    x, y = numbers((3, 4), 1), numbers((3, 4), 2)
    expected = call(x.to(torch.complex64), y.to(torch.complex64))
    narrow = {torch.complex64: torch.complex32, torch.float32: torch.float16}.get(expected.dtype, expected.dtype)
    actual = call(x.to(device), y.to(device))
    assert actual.dtype == narrow
    torch.testing.assert_close(actual.cpu().to(expected.dtype), expected, atol=2e-3, rtol=2e-3)


@pytest.mark.parametrize("other", [torch.float16, torch.float32, torch.float64, torch.int64], ids=str)
def test_promotion(other: torch.dtype, device: torch.device) -> None:
    def program(device: torch.device) -> list[Tensor]:
        x = numbers((3,)).to(device)
        y = torch.ones(3, dtype=other, device=device)
        return [x + y, y + x, x + y[0], x[0] + y, x + x.to(torch.complex64)]

    assert_same([each.dtype for each in program(device)], [each.dtype for each in program(torch.device("cpu"))])


def test_fourier_transforms_of_float16(device: torch.device) -> None:
    """CUDA's result dtypes; the CPU refuses them."""
    x = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).half()
    for transform, back in ((torch.fft.fft, torch.fft.ifft), (torch.fft.rfft, torch.fft.irfft)):
        there = transform(x.to(device))
        assert there.dtype == torch.complex32
        torch.testing.assert_close(there.cpu().to(torch.complex64), transform(x.float()), atol=1e-2, rtol=2e-3)
        torch.testing.assert_close(back(there).real.cpu(), x, atol=1e-2, rtol=2e-3)


def test_gradients(device: torch.device) -> None:
    x = numbers((3, 4)).to(device).requires_grad_()
    (x * (1 + 2j)).abs().sum().backward()
    wide = numbers((3, 4)).to(torch.complex64).requires_grad_()
    (wide * (1 + 2j)).abs().sum().backward()
    torch.testing.assert_close(x.grad.cpu().to(torch.complex64), wide.grad, atol=5e-3, rtol=5e-3)


def test_compiled_saved_and_printed(device: torch.device) -> None:
    x = numbers((3, 4)).to(device)
    torch.testing.assert_close(torch.compile(lambda x: x * x + 1j)(x), x * x + 1j)
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert_same(torch.load(file), numbers((3, 4)).to(device).cpu().to(device).cpu())
    assert repr(x).count("j") == 12
    assert complex(x[0, 0].item()) == complex(numbers((3, 4))[0, 0].item())


@pytest.mark.parametrize("call", [torch.linalg.qr, torch.linalg.eigh, lambda x: x @ x])
def test_what_cuda_refuses(call: Callable[[Tensor], object], device: torch.device) -> None:
    check_refused(lambda device: call(numbers((3, 3)).to(device)), device)
