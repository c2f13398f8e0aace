"""Rows of crates/aten/src/ops/shape/rearrange.rs."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.helpers import assert_same, check, check_refused
from tests.operators.samples import samples

test_samples = samples(
    "_chunk_cat",
    "as_strided_scatter",
    "block_diag",
    "cartesian_prod",
    "cat",
    "clone",
    "column_stack",
    "contiguous",
    "diag",
    "diag_embed",
    "diagflat",
    "diagonal_scatter",
    "diff",
    "dstack",
    "flip",
    "fliplr",
    "flipud",
    "gradient",
    "hstack",
    "nn.functional.channel_shuffle",
    "nn.functional.pixel_shuffle",
    "nn.functional.pixel_unshuffle",
    "repeat",
    "roll",
    "rot90",
    "select_scatter",
    "slice_scatter",
    "stack",
    "tile",
    "trace",
    "tril",
    "tril_indices",
    "triu",
    "triu_indices",
    "vstack",
)


def test_block_diag_names_the_devices(device: torch.device) -> None:
    with pytest.raises(RuntimeError, match=r"must all be on the same device. Input 0 is on device cpu and input 1"):
        torch.block_diag(torch.ones(2, 2), torch.ones(2, 2, device=device))


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("dim", [0, -1])
def test_select_scatter_beside_merged_dimensions(device: torch.device, dim: int) -> None:
    """The source has no padding where the tensor has some between its elements."""

    def run(length: int, d: torch.device) -> Tensor:
        x = torch.arange(4.0 * 2 * length * 3).view(4, 2, length, 3)
        sizes = {0: (2 * length, 3), -1: (4, 2 * length)}[dim]
        return torch.select_scatter(x.to(d).flatten(1, 2), -torch.ones(sizes).to(d), dim, 1)

    for length in (7, 4, 6, 5, 3):
        check(functools.partial(run, length), device)


@pytest.mark.usefixtures("changing_sizes")
@pytest.mark.parametrize("dims", [(0, -1), (-1, 0), (-2, -1), (0, 1)])
def test_diag_embed_of_sizes_that_change(device: torch.device, dims: tuple[int, int]) -> None:
    """Sizes of the result that were not given were taken for none."""

    def run(length: int, d: torch.device) -> list[Tensor]:
        x = torch.arange(3.0 * length).view(3, length).to(d)
        return [torch.diag_embed(x, 0, *dims), torch.diag_embed(x[:, 1], 1, *dims)]

    for length in (5, 7, 4, 9, 6, 3):
        check(functools.partial(run, length), device)


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("dim", [0, 1])
def test_unfold_backward_of_one_row(device: torch.device, mode: str, rows: int, dim: int) -> None:
    """The gradient of one row is that of every row. PyTorch's `istft` for other devices calls it so."""

    def run(d: torch.device) -> Tensor:
        grad = torch.arange(rows * 6.0 * 10).view(rows, 6, 10).to(d)
        sizes = (3, 20) if dim == 1 else (20, 3)
        return torch.ops.aten.unfold_backward(grad if dim == 1 else grad.transpose(0, 1), sizes, dim, 10, 2)

    check(run, device)


@pytest.mark.parametrize("indices", [torch.tril_indices, torch.triu_indices])
def test_indices_of_triangles(device: torch.device, indices: Callable[..., Tensor]) -> None:
    """Rows and columns without elements in the triangle take no memory."""
    offsets = (-(2**62), -9, -5, -3, -1, 0, 1, 2, 4, 8)
    small = [(r, c, o) for r in (0, 1, 2, 5) for c in (0, 1, 3, 7) for o in offsets]
    for case in (*small, (2**40, 4, -1) if indices is torch.triu_indices else (4, 2**40, -1)):
        assert_same(indices(*case, device=device).cpu(), indices(*case))


def test_as_strided_scatter_writes_each_element_once(device: torch.device) -> None:
    def run(d: torch.device) -> Tensor:
        return torch.arange(6.0, device=d).as_strided_scatter(torch.ones(2, 3, device=d), (2, 3), (0, 1))

    assert "more than one element of the written-to tensor" in str(check_refused(run, device))
    check(lambda d: torch.arange(6.0, device=d).as_strided_scatter(torch.ones(1, 3, device=d), (1, 3), (0, 2)), device)


@pytest.mark.parametrize("size", [0, 1])
def test_the_gradient_of_windows_of_a_number(device: torch.device, size: int) -> None:
    def run(d: torch.device) -> Tensor:
        x = torch.tensor(3.0, device=d, requires_grad=True)
        return torch.autograd.grad((x.unfold(0, size, 1) * 2).sum(), x)[0]

    check(run, device)
