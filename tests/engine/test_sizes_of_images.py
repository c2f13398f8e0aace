"""Windows, pools, padding and Fourier transforms of sizes that change: after a few sizes nothing is compiled."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.engine.settling import SETTLED, check_that_it_settles
from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")

# The largest come early: each capacity of two dimensions together is a program.
WIDTHS = (61, 47, 58, 48, 53, 44, 59, 55, 51, 50)
HEIGHTS = (59, 62, 41, 53, 46, 57, 40, 49, 60, 43)


def columns(x: Tensor) -> Tensor:
    return F.unfold(x, 3, padding=1)


def strided_columns(x: Tensor) -> Tensor:
    return F.unfold(x, (2, 3), stride=2, dilation=(1, 2))


def folded(x: Tensor) -> Tensor:
    """Means of overlapping patches, put back into the image."""
    patches = F.unfold(x, 3, padding=1)
    return F.fold(patches - patches.mean(1, keepdim=True), x.shape[-2:], 3, padding=1)


def circular(x: Tensor) -> Tensor:
    return F.pad(x, (6, 7, 8, 0), mode="circular")


def circular_and_cut(x: Tensor) -> Tensor:
    return F.pad(x, (6, -9, -8, 7), mode="circular")


def unpooled(x: Tensor) -> Tensor:
    values, places = F.max_pool2d(x, 2, return_indices=True)
    return F.max_unpool2d(values * 2, places, 2, output_size=x.shape[-2:])


def unpooled_sound(x: Tensor) -> Tensor:
    values, places = F.max_pool1d(x[:, :, 0], 3, 2, return_indices=True)
    return F.max_unpool1d(values * 2, places, 3, 2, output_size=x.shape[-1:])


def adaptive(x: Tensor) -> Tensor:
    return F.adaptive_avg_pool2d(x, (x.shape[2] // 2, x.shape[3] // 3))


def area(x: Tensor) -> Tensor:
    return F.interpolate(x, size=(x.shape[2] // 2 + 3, x.shape[3] * 2 - 5), mode="area")


def gated(x: Tensor) -> Tensor:
    return F.glu(torch.cat([x, x * 2], 3), 3)


def repeated(x: Tensor) -> Tensor:
    return x.repeat_interleave(3, dim=3)


def repeated_as_told(x: Tensor) -> Tensor:
    repeats = (torch.arange(x.shape[3]) % 4).to(x.device)
    return x.repeat_interleave(repeats, dim=3)


def windows_of_rows(x: Tensor) -> Tensor:
    return x.unfold(2, 8, 4).square()


def transformed(x: Tensor) -> Tensor:
    return torch.fft.fft(x).abs() + torch.fft.ifft(x, norm="forward").imag


def filtered(x: Tensor) -> Tensor:
    """A long convolution, as in state-space models."""
    length = x.shape[-1]
    kernel = torch.linspace(1, 0, 64, device=x.device)[:length].exp()
    product = torch.fft.rfft(x, n=2 * length) * torch.fft.rfft(kernel, n=2 * length)
    return torch.fft.irfft(product, n=2 * length)[..., :length]


def transformed_image(x: Tensor) -> Tensor:
    spectrum = torch.fft.rfft2(x, norm="ortho")
    return torch.fft.irfft2(spectrum * spectrum.abs(), s=x.shape[-2:], norm="ortho")


@functools.cache
def kernels(device: torch.device) -> list[list[Tensor]]:
    generator = torch.Generator().manual_seed(0)
    return [
        [(torch.randn(outputs, inputs, k, k, generator=generator) * 0.2).to(device) for k in (3, 1)]
        for inputs, outputs in ((5, 16), (16, 24))
    ]


def halved_twice(x: Tensor) -> Tensor:
    """Convolutions that halve the image, with a shortcut each. Some sizes equal the numbers of channels."""
    for kernel, shortcut in kernels(x.device):
        y = F.conv2d(x, kernel, stride=2, padding=1)
        y = F.batch_norm(y, None, None, training=True) + F.conv2d(x, shortcut, stride=2)
        x = F.max_pool2d(F.relu(y), 3, 1, 1) + F.avg_pool2d(y, 3, 1, 1)
    return x


PROGRAMS = [
    columns,
    strided_columns,
    folded,
    circular,
    circular_and_cut,
    unpooled,
    unpooled_sound,
    adaptive,
    area,
    gated,
    repeated,
    repeated_as_told,
    windows_of_rows,
    transformed,
    filtered,
    transformed_image,
    halved_twice,
]


def images(sizes: Iterable[tuple[int, int]]) -> Iterator[Tensor]:
    return (torch.randn(4, 5, *size) for size in sizes)


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_widths_settle(program: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(program, device, images((24, width) for width in WIDTHS))


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize(
    "program", [folded, area, gated, windows_of_rows, transformed, filtered, transformed_image, halved_twice]
)
def test_images_settle(program: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(program, device, images(zip(HEIGHTS, WIDTHS, strict=True)))


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_widths_of_the_sizes_of_windows_settle(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    # Windows of 9 elements and 5 channels.
    check_that_it_settles(columns, device, images((24, width) for width in (*WIDTHS[:SETTLED], 45, 57, 45)))


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_images_of_the_sizes_of_channels_settle(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    sizes = (40, 42, 17, 30, 24, 32, 48, 16, 19, 64, 33, 47)
    check_that_it_settles(halved_twice, device, images((size, size) for size in sizes), settled=2)


# Images of a detector are resized to sizes of their own. Their batch is as large as the largest, rounded up.
RESIZED = ((61, 74), (96, 67), (58, 83), (75, 52), (88, 71), (66, 91), (79, 62), (92, 54), (69, 86), (57, 78), (83, 65))


def batched(images: list[Tensor], resized: list[tuple[int, int]], kernel: Tensor) -> list[Tensor]:
    """Convolution of a batch of resized images, and its gradient."""
    resize = zip(images, resized, strict=True)
    parts = [F.interpolate(x[None] * 2 - 1, size=size, mode="bilinear")[0] for x, size in resize]
    height, width = (-(-max(part.shape[axis] for part in parts) // 8) * 8 for axis in (1, 2))
    batch = parts[0].new_full((len(parts), 3, height, width), 0)
    for i, part in enumerate(parts):
        batch[i, :, : part.shape[1], : part.shape[2]].copy_(part)
    kernel = kernel.detach().requires_grad_()
    result = F.relu(F.conv2d(batch, kernel, stride=2, padding=1))
    return [batch, result.detach(), *torch.autograd.grad(result.square().mean(), kernel)]


@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_batches_of_resized_images_settle(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    made, kernel = [], torch.randn(6, 3, 3, 3) * 0.2
    kernel_on_device = kernel.to(device)
    for i in range(40):
        given = [torch.rand(3, *RESIZED[(i + k) % len(RESIZED)][::-1]) for k in (0, 3)]
        resized = [RESIZED[(7 * i + k) % len(RESIZED)] for k in (0, 5)]
        before = programs_made()
        actual = [each.cpu() for each in batched([x.to(device) for x in given], resized, kernel_on_device)]
        made.append(programs_made() - before)
        for one, other in zip(actual, batched(given, resized, kernel), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    # A batch that is as high as it is wide has programs of its own.
    assert sum(made[24:]) == 0, made


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_transforms_are_as_exact_as_for_one_size(device: torch.device, dtype: torch.dtype) -> None:
    """Beside NumPy: on some processors, MKL's transforms of some lengths are 60 times less exact."""
    torch.tpu.set_eager_mode("strict")
    for size in (211, 503, 347, 283, 419, 263, 487):
        x = torch.randn(3, size, dtype=dtype)
        x_on_device = x.to(device)
        for transform in ("fft", "ifft", "rfft", "hfft"):
            expected = torch.from_numpy(getattr(np.fft, transform)(x.double().numpy()))
            actual = getattr(torch.fft, transform)(x_on_device).cpu().to(expected.dtype)
            error = (actual - expected).abs().max() / expected.abs().max()
            assert error < 8 * torch.finfo(dtype).eps, (transform, size, error)
