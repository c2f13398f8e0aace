"""Rows of crates/aten/src/ops/nn/pad.rs."""

import functools

import pytest
import torch

from tests.helpers import check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "constant_pad_nd",
    "nn.functional.pad.circular",
    "nn.functional.pad.constant",
    "nn.functional.pad.reflect",
    "nn.functional.pad.replicate",
    "nn.functional.pad.replicate_negative",
)


@pytest.mark.parametrize("sizes", [(4, -4), (-4, 4), (2, -4), (-5, 4), (-1, 2), (4, -6)])
def test_a_negative_size_removes_what_is_added(sizes: tuple[int, int], device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.linspace(-1, 2, 12).view(2, 2, 3).to(device).requires_grad_()
        padded = torch.nn.functional.pad(x, sizes, "replicate")
        return [padded.detach(), *torch.autograd.grad((padded * padded.detach().cos()).sum(), x)]

    check(program, device)


@pytest.mark.usefixtures("changing_sizes")
def test_negative_sizes_at_other_lengths(device: torch.device) -> None:
    def program(length: int, device: torch.device) -> list[torch.Tensor]:
        results = []
        for sizes in ((4, -4), (-4, 4), (2, -4), (-5, 4), (-2, 1)):
            x = torch.linspace(-1, 2, 4 * length).view(2, 2, length).to(device).requires_grad_()
            padded = torch.nn.functional.pad(x, sizes, "replicate")
            results += [padded.detach(), *torch.autograd.grad((padded * padded.detach().cos()).sum(), x)]
        return results

    for length in (3, 9, 5, 4, 12, 7):
        check(functools.partial(program, length), device)


@pytest.mark.parametrize("sizes", [(2, 1), (-1, 3), (3, -2), (-1, -2), (1, 0, 2, 2), (3, -1, -2, 1), (0, 0, 0, 0)])
@pytest.mark.parametrize("is_last", [False, True])
def test_circular(sizes: tuple[int, ...], is_last: bool, device: torch.device) -> None:
    def program(device: torch.device) -> list[torch.Tensor]:
        x = torch.linspace(-1, 2, 60).view(1, 3, 4, 5).to(device)
        x = x.to(memory_format=torch.channels_last) if is_last and len(sizes) == 4 else x
        x = (x if len(sizes) == 4 else x[0]).requires_grad_()
        padded = torch.nn.functional.pad(x, sizes, "circular")
        (gradient,) = torch.autograd.grad((padded * padded.detach().cos()).sum(), x)
        return [padded.detach(), gradient.contiguous()]

    check(program, device)


@pytest.mark.parametrize("sizes", [(6, 0), (-3, -3), (0, 0, 0, 0, 0, 0)])
def test_circular_padding_is_refused(sizes: tuple[int, ...], device: torch.device) -> None:
    check_refused(lambda d: torch.ops.aten._pad_circular(torch.ones(2, 3, 5, device=d), sizes), device)


@pytest.mark.parametrize("sizes", [(2**62, 2**62), (2**63 - 1, 1), (-(2**63), -1)])
def test_sizes_whose_sum_is_no_int64_are_refused(sizes: tuple[int, int], device: torch.device) -> None:
    error = check_refused(lambda device: torch.nn.functional.pad(torch.ones(3, device=device), sizes), device)
    assert "internal error" not in str(error)
