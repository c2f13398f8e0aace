"""Views that show a length that changes in parts, and reads of views: after a few sizes nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torchtpu._C import set_sizes

from tests.engine.settling import SETTLED, SIZES, check_that_it_settles
from tests.helpers import programs_made

pytestmark = pytest.mark.usefixtures("changing_sizes")


def halves(x: Tensor) -> Tensor:
    """The parts are as many as before, and longer."""
    return x.reshape(3, -1).view(3, 2, -1).cumsum(-1).tanh()


def groups(x: Tensor) -> Tensor:
    """The parts are as long as before, and more."""
    return x.view(3, -1, 4).cumsum(-1).tanh()


def patches(x: Tensor) -> Tensor:
    """Parts of two dimensions."""
    image = x[:, None] * x[0, :, None]
    side = image.shape[-1] // 4
    cut = image.view(3, side, 4, side, 4).permute(0, 1, 3, 2, 4)
    return cut.reshape(3, -1, 16).cumsum(-1).tanh()


def frames(x: Tensor) -> Tensor:
    return x.unfold(1, 6, 2).mean(-1) + x[0].detach().as_strided((x.shape[1] - 4, 5), (1, 1)).sum()


def downsampled(x: Tensor) -> Tensor:
    return x[:, ::2].tanh().sum() * x[:, 1::4]


def turned(x: Tensor) -> Tensor:
    """Positions of an image that follow from its size, written into parts of a new tensor."""
    image = x[:, None, :, None] * x[0]
    turns = torch.eye(2, 3, device=x.device).expand(3, 2, 3) + x.mean() * 0.01
    return F.grid_sample(image, F.affine_grid(turns, list(image.shape), align_corners=False), align_corners=False)


def relative(x: Tensor) -> Tensor:
    """Positions that are half as many as a tensor has."""
    place = torch.arange(x.shape[1] // 2, device=x.device)
    return x[:, place[:, None] - place[None] + x.shape[1] // 2]


def spaced(x: Tensor) -> Tensor:
    return x * torch.linspace(-1, 2, x.shape[1], device=x.device) + torch.linspace(
        3, 50, x.shape[1], dtype=torch.int64, device=x.device
    )


def windows(x: Tensor) -> Tensor:
    """Parts in two dimensions of a view, of which one has a known length."""
    return x.view(3, -1, 2, 2).cumsum(2).tanh()


def numbered(x: Tensor) -> Tensor:
    """Numbers for all elements, shown as the tensor is."""
    return (torch.arange(x.numel(), device=x.device).view(3, -1) * x).tanh()


def spectrum(x: Tensor) -> Tensor:
    """Overlapping windows, whose gradient adds at positions in a new tensor."""
    return torch.stft(x, 16, 4, window=torch.hann_window(16, device=x.device), return_complex=True).abs()


def unshuffled(x: Tensor) -> Tensor:
    """Every second pixel of an image in each direction becomes a channel."""
    return F.pixel_unshuffle(x[:, None, :, None] * x[0], 2).tanh()


def joined(x: Tensor) -> Tensor:
    """A whole and its start, one after another in a new tensor."""
    return torch.nn.utils.rnn.pad_sequence([x.mT * 2, x.mT[:7] * 3], batch_first=True).tanh()


def counted(x: Tensor) -> Tensor:
    return (x * torch.histc(x.detach(), 4, -1, 1).max() * 0.1).tanh()


PROGRAMS = (
    halves,
    groups,
    patches,
    frames,
    downsampled,
    turned,
    relative,
    spaced,
    windows,
    numbered,
    unshuffled,
    joined,
    counted,
)


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_parts_settle(program: Callable[[Tensor], Tensor], device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(program, device, (torch.randn(3, 4 * size) for size in SIZES))


# Positions in a new tensor take more sizes: those of the batch, of the gradient and of both.
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_spectra_settle(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(spectrum, device, (torch.randn(3, 4 * size) for size in (*SIZES, 27, 20, 24)), settled=8)


@pytest.mark.parametrize("mode", ["strict", "fused"])
@pytest.mark.parametrize(("length", "batches"), [(12, (3,)), (8, (10, 2, 3))], ids=["exact", "other padding"])
def test_spectra_settle_after_other_calls_at_a_size(
    length: int, batches: tuple[int, ...], device: torch.device, mode: str
) -> None:
    """Tensors that another line has made at a size do not decide the padding here. The length of the windows makes the
    programs differ from those of other tests."""

    def program(x: Tensor) -> Tensor:
        return torch.stft(x, length, 4, window=torch.hann_window(length, device=x.device), return_complex=True).abs()

    torch.tpu.set_eager_mode(mode)
    for batch in batches:
        x = torch.randn(batch, 4 * 25).to(device).requires_grad_()
        torch.autograd.grad(program(x).sum(), x)
    if len(batches) > 1:
        set_sizes("dynamic")
    check_that_it_settles(program, device, (torch.randn(3, 4 * size) for size in (*SIZES, 27, 20, 24)), settled=8)


ENDS: dict[str, Callable[[Tensor], Tensor]] = {
    "first": lambda x: x[:, :5],
    "last": lambda x: x[:, -5:],
    "inner": lambda x: x[:, 3:8],
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("mode", ["strict", "fused"])
def test_a_part_that_stays_is_exact(end: str, device: torch.device, mode: str) -> None:
    """A few rows of a matrix whose number of rows changes: the factorization has results of this known number."""

    def program(x: Tensor) -> Tensor:
        return torch.linalg.qr(ENDS[end](x * 2))[1].abs()

    torch.tpu.set_eager_mode(mode)
    check_that_it_settles(program, device, (torch.randn(4, size, 3) for size in SIZES), settled=3)


def test_a_part_that_varies_after_it_stayed(device: torch.device, mode: str) -> None:
    torch.tpu.set_eager_mode(mode)
    for length, size in zip((5, 5, 5, 5, 7, 5, 9, 8, 5, 6), (*SIZES, 27), strict=True):
        x = torch.randn(3, size)
        y = (x.to(device) * 2)[:, 1 : 1 + length].cumsum(-1)
        torch.testing.assert_close(y.cpu(), (x * 2)[:, 1 : 1 + length].cumsum(-1))


READS: dict[str, Callable[[Tensor], Tensor]] = {
    "transposed": lambda x: (x * 2).mT,
    "every second": lambda x: (x * 2)[:, 1::2],
    "repeated": lambda x: x.sum().expand(x.shape),
    "repeated rows": lambda x: (x * 2)[:, :1].expand(x.shape),
    "repeated in two dimensions": lambda x: (x * 2)[0, 1:2, None].expand(3, x.shape[1], 2),
    "diagonal": lambda x: torch.outer(x[0], x[1]).diagonal(1),
    "conjugated": lambda x: torch.complex(x, -x).mT.conj(),
}


@pytest.mark.parametrize("name", READS)
def test_reads_of_views_settle(name: str, device: torch.device, mode: str) -> None:
    for number, size in enumerate(SIZES):
        x = torch.randn(3, size)
        result = READS[name](x.to(device))
        before = programs_made()
        torch.testing.assert_close(result.cpu(), READS[name](x))
        made = programs_made() - before
        assert number < SETTLED or not made, f"{made} programs at size {size}"
